package decider

import (
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// A system without an agent is never heard by a session. What proves that it has come up is the secret that only this
// installation was given, posted by cloud-init to the site's agent with the installation's own instance id.

// capAgentless is what an installer must be able to do for it.
const capAgentless = "agentless"

// agentless reports whether the system that this operation has written has no agent.
func (d *decider) agentless() bool {
	for i := d.op.CurrentStep; i >= 0; i-- {
		if s := d.op.Steps[i]; kind.Of(s.Kind).WritesSystem {
			return s.Agentless
		}
	}
	return false
}

// phonedHome returns the system without an agent, once it has posted its secret from this operation's installation.
func (d *decider) phonedHome() arrival {
	said := d.w.Boot.PhonedHome
	if !d.installed() || said[evidence.PhonedHomeAt] == "" || said[evidence.InstanceID] != evidence.InstanceOf(d.op.ID) {
		return arrival{}
	}
	return arrival{by: operation.ByPhoneHome, phoned: said}
}

// awaitsPhoneHome reports whether the current command is to bring up a system without an agent.
func (d *decider) awaitsPhoneHome() bool {
	return d.boots() == operation.SystemWritten && d.agentless()
}

// noPhoneHome ends an operation whose system has not phoned home in time. A power cycle that was read back is over; a
// restart that the installer was to make may still come.
func (d *decider) noPhoneHome() {
	const code = "PHONE_HOME_MISSING"
	limit := d.step().Timeout.Round(time.Second)
	message := "the disk was written and verified, and the new system has not phoned home within " +
		limit.String() + "; look at its console: did it boot, run cloud-init, get an address, and reach the boot " +
		"server of its site?"
	if said := d.w.Boot.PhonedHome[evidence.InstanceID]; said != "" {
		message += " One with the right secret called, as instance " + said + " and not " + evidence.InstanceOf(d.op.ID) + "."
	}
	if d.cmd.ExecutorRole == "site" && !d.cmd.ClaimedAt.IsZero() {
		d.setCommand(operation.Done)
		d.fail(code, message, true)
		return
	}
	d.cmd.Message = message
	d.unknown(code, message)
}

// reachedByPhone keeps the condition Reachable of a machine whose system has phoned home.
func (d *decider) reachedByPhone() {
	if d.op.Evidence[evidence.PhonedHomeAt] == "" {
		return
	}
	d.condition(fleet.Reachable, true, "PhonedHome", "")
	d.out.Machine.ProbeAddress = d.op.Evidence[evidence.PhonedHomeFrom]
}

// answersProbe reports whether a machine without an agent was seen off, then on, and then its system on the network.
func (d *decider) answersProbe(e operation.Resulted) bool {
	off, on := e.Evidence[evidence.PowerOffSeenAt], e.Evidence[evidence.PowerOnSeenAt]
	return d.w.Machine.Agentless && d.cmd.ExecutorRole == "site" && d.boots() == operation.SystemSame && off != "" &&
		on != "" && e.Evidence[evidence.ProbeAnsweredAt] != ""
}
