package judge

import (
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// reasons are what must have been true for each reason that a cause names, besides what its rule asks for.
var reasons = map[string]func(*claim){
	"": func(*claim) {}, // no cause is named
	// Judged by the rules that name them.
	"NOT_PROVISIONED": func(*claim) {}, "NODE_OFFLINE": func(*claim) {}, "MACHINE_UNREACHABLE": func(*claim) {},
	"NOT_OBSERVED": func(*claim) {}, "CANCELED_BY_REQUEST": func(*claim) {}, "INSTALL_ATTEMPTS_EXHAUSTED": func(*claim) {},
	"OUTCOME_UNKNOWN":        (*claim).outcomeUnknown,
	"EVIDENCE_MISSING":       (*claim).evidenceMissing,
	"NOBODY_REACHES_MACHINE": (*claim).unreached, "SITE_AGENT_SILENT": (*claim).unreached,
	"AGENT_UNAVAILABLE": (*claim).unreached, "SESSION_SUPERSEDED": (*claim).refused, "GRANT_REFUSED": (*claim).refused,
	"COMMAND_EXPIRED":       (*claim).expired,
	"CAPABILITY_MISSING":    (*claim).withoutBMC,
	"EXECUTION_FAILED":      (*claim).interrupted,
	"STEP_TIMEOUT":          (*claim).interrupted,
	"CONFIG_ROLLED_BACK":    (*claim).interrupted,
	"CONTROLLER_LEASE_LOST": (*claim).ownTrouble,
}

// reason judges the reason that the cause names. One that accuses what no fault has touched is a lie: memories were not
// rolled back, nothing was copied, no disk was full, and no one has locked, flagged or frozen anything.
func (c *claim) reason() {
	judgement, known := reasons[c.a.GetReason()]
	switch _, exists := baremetalv1.Reason_value[c.a.GetReason()]; {
	case known:
		judgement(c)
	case exists && slices.Contains(accusations, c.a.GetReason()):
		c.lie("no fault has brought %s about", c.a.GetReason())
	default:
		c.unjudged("reason %q", c.a.GetReason())
	}
}

// accusations are reasons that no fault of this run brings about.
var accusations = []string{
	"AGENT_STATE_ROLLED_BACK", "AGENT_MEMORY_LOST", "CLONE_DETECTED", "AGENT_STORAGE_FULL", "AGENT_LOCKED",
	"EXECUTOR_PANICKED", "FLEET_FROZEN", "MACHINE_QUARANTINED", "MACHINE_BLOCKED", "BUDGET_REQUIRED",
	"ENROLMENT_CONTESTED", "CERTIFICATE_REVOKED", "HARDWARE_FAULT", "DISK_WRITE_ERROR", "BMC_UNREACHABLE",
	"BMC_AUTH_FAILED", "BMC_NO_EFFECT", "IMAGE_NOT_FOUND", "IMAGE_DIGEST_MISMATCH", "WRONG_SYSTEM_BOOTED",
	"INSTALLER_MISSING", "INSTALLER_SILENT", "NO_BOOT_PATH", "INVALID_FIELD", "SETTLED_BY_OPERATOR",
}

// outcomeUnknown: a command of the operation was granted, and a fault kept its result away.
func (c *claim) outcomeUnknown() {
	cmd := c.command
	if cmd == nil || cmd.GetGrantedAt() == nil {
		c.lie("no command of the operation was granted")
		return
	}
	c.unknownFor(cmd)
}

// evidenceMissing: the executor claimed success, and no new boot was seen. In the end the world's boot has been seen.
func (c *claim) evidenceMissing() {
	cmd := c.command
	if cmd == nil {
		c.lie("the operation has no command")
		return
	}
	c.unknownFor(cmd)
	if c.e.Live || cmd.GetState() != "UNKNOWN" {
		return
	}
	if c.judge.happened(cmd) && c.e.Machine.GetStatus().GetBootId() == c.judge.world[c.a.GetMachineId()].BootID {
		c.lie("the machine has booted after command %s, and its boot id is known", cmd.GetCommandId())
	}
}

// unreached: nothing was started, and a fault struck an agent of the machine, or the system, while it was under way.
// Where no operation is meant, the rule judges the silence.
func (c *claim) unreached() {
	if c.op == nil {
		return
	}
	if cmd := c.command; cmd != nil && !c.e.Live && cmd.GetGrantedAt() != nil && cmd.GetState() == "DONE" &&
		!(cmd.GetOutcome() == "FAILED" && strings.Contains(c.a.GetCause(), nextAttempt)) {
		c.lie("command %s was granted", cmd.GetCommandId())
	}
	from, to := c.judge.during(c.op)
	if !c.judge.struck(from, min(to, c.e.At), append(slices.Clone(own), c.judge.reaching(c.a.GetMachineId())...)...) {
		c.lie("no fault has struck an agent of the machine, or a controller")
	}
}

// nextAttempt is what a cause names that had no command: the one before has failed, and is the operation's last.
const nextAttempt = "no agent could take the next attempt"

// refused: the executor never touched the machine.
func (c *claim) refused() {
	if cmd := c.command; cmd != nil && c.judge.touched(cmd) && (!c.e.Live || cmd.GetOutcome() == "REFUSED") {
		c.lie("command %s reached the world: %v", cmd.GetCommandId(), c.judge.effects[cmd.GetCommandId()][0])
	}
}

// expired is refused, and a text that blames the agent's clock is true only where that was stepped.
func (c *claim) expired() {
	c.refused()
	stepped := c.command != nil && slices.ContainsFunc(c.judge.Faults, func(f check.Fault) bool {
		return f.Target == c.judge.executor(c.command) && strings.HasPrefix(f.Kind, "step-")
	})
	if strings.Contains(c.a.GetCause(), "clock") && !stepped {
		c.lie("no fault has stepped the agent's clock")
	}
}

// interrupted: the executor began, and a fault interrupted it, or the machine was off. Nothing in these worlds fails by
// itself.
func (c *claim) interrupted() {
	cmd := c.command
	if strings.Contains(c.a.GetCause(), "the simulated machine is down") && c.switchedOff() {
		c.refused()
		return
	}
	if cmd == nil || cmd.GetGrantedAt() == nil {
		c.lie("no command of the operation was granted")
		return
	}
	c.unknownFor(cmd)
}

// withoutBMC: the client asked for a power cycle through a BMC, and simulated machines have none. Nothing was done.
func (c *claim) withoutBMC() {
	c.refused()
	if c.op == nil || !slices.ContainsFunc(c.judge.Calls, func(x check.Call) bool {
		return x.Method == check.Start && x.Request == c.op.GetRequestId() && x.Kind == "reboot-bmc"
	}) {
		c.lie("the agents can do all that the clients ask for but power cycles")
	}
}

// switchedOff reports whether the machine was switched off in the run.
func (c *claim) switchedOff() bool {
	return slices.ContainsFunc(c.judge.Effects, func(e sim.EffectRecord) bool {
		return e.MachineID == c.a.GetMachineId() && e.Kind == sim.KindPowerOff && e.Stage == sim.StageEffect
	})
}
