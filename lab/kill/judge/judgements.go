package judge

import (
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// judgements are what must have been true for each rule of docs/reference/why-rules.md.
var judgements = map[string]func(*claim){
	// At rest.
	"fenced":         (*claim).fenced,
	"failed":         (*claim).failed,
	"canceled":       (*claim).canceled,
	"succeeded":      (*claim).succeeded,
	"intervention":   (*claim).intervention,
	"install-failed": (*claim).installFailed,
	"unusable":       (*claim).unusable,
	"not-observed":   (*claim).siteSilent,
	"agent-silent":   (*claim).agentSilent,
	"new":            inPhase(baremetalv1.MachineStatus_FACTORY_READY),
	"maintenance":    inPhase(baremetalv1.MachineStatus_MAINTENANCE),
	"idle":           inPhase(baremetalv1.MachineStatus_READY),
	"never-enrolled": (*claim).neverEnrolled,
	"life":           (*claim).life,
	// While an operation is active: never in the end, and otherwise true by what the claim names.
	"cancelling":         (*claim).cancelling,
	"nobody-looks":       (*claim).ownTrouble,
	"not-started":        (*claim).ownTrouble,
	"retry":              (*claim).active,
	"evidence":           (*claim).active,
	"executing":          (*claim).active,
	"granted-and-silent": (*claim).executorSilent,
	"nobody":             (*claim).executorSilent,
	"agent":              (*claim).executorSilent,
	"executor-gone":      (*claim).executorSilent,
	"not-acknowledged":   (*claim).active,
	"grant":              (*claim).active,
	"pending":            (*claim).active,
	"between-steps":      (*claim).active,
	// No client and no fault brings these about.
	"deleted":               never,
	"quarantined":           never,
	"quarantined-under-way": never,
	"blocked":               never,
	"blocked-under-way":     never,
	"frozen":                never,
	"frozen-fleet":          never,
	"budget":                never,
	"reported-install":      never,
	"replacement":           never,
	"site":                  never,
	"installer":             never,
	"booting":               never,
	"executor-locked":       never,
	"workflow":              never,
	"health-checks":         never,
	"unowned":               never,
	"provider-drift":        never,
	"probe-silent":          never,
	"drift":                 never,
	"bmc-trouble":           never,
	"hardware-fault":        never,
	"raid-degraded":         never,
	"provider-trouble":      never,
	"rollout":               never,
}

// never: nothing in the run has brought this about.
func never(c *claim) { c.lie("no client and no fault has brought that about") }

// inPhase: the machine is in the phase in which its operations have left it, and nothing is under way.
func inPhase(p baremetalv1.MachineStatus_Phase) func(*claim) {
	return func(c *claim) {
		if s := c.e.Machine.GetStatus(); s.GetPhase() != p || s.GetActiveOperationId() != "" {
			c.lie("the machine is in phase %s with operation %q", s.GetPhase(), s.GetActiveOperationId())
		}
	}
}

// settles begins what a fenced machine waits for, before the name of the command.
const settles = "an operator who settles command "

// fenced: the command that is named is unresolved, was granted as the text reads, and a fault kept its result away.
func (c *claim) fenced() {
	id := strings.TrimPrefix(c.a.GetWaitsFor(), settles)
	cmd := c.judge.commands[id]
	if cmd == nil {
		c.lie("command %q does not exist", id)
		return
	}
	if !c.e.Live && (cmd.GetState() != "UNKNOWN" || c.e.Machine.GetStatus().GetUnresolvedCommandId() != id) {
		c.lie("command %s is %s, and the machine is fenced over %q", id, cmd.GetState(),
			c.e.Machine.GetStatus().GetUnresolvedCommandId())
	}
	text := c.a.GetCause()
	if strings.Contains(text, "was granted at") && cmd.GetGrantedAt() == nil {
		c.lie("command %s was never granted", id)
	}
	if strings.Contains(text, "this database has no grant for") {
		c.lie("only a database that went back, or an agent that lies, brings that about")
	}
	if strings.Contains(text, "another memory") {
		c.lie("no fault has changed an agent's memory")
	}
	if strings.Contains(text, "no new boot") && !c.e.Live && cmd.GetKind() == "reboot" && c.judge.happened(cmd) {
		c.lie("the machine has booted, and its agent is connected")
	}
	// A controller that stands still records nothing of the agents that it has.
	if strings.Contains(text, "was heard last at") && !c.silencedNow(c.judge.executor(cmd)) &&
		!(c.e.Live && c.judge.struck(c.e.At, c.e.At, own...)) {
		c.lie("%s is not silent", c.judge.executor(cmd))
	}
	c.unknownFor(cmd)
}

// unknownFor: a result is missing only because a fault struck its executor, or the system itself.
func (c *claim) unknownFor(cmd *baremetalv1.Command) {
	from := cmd.GetCreatedAt().AsTime().Sub(c.judge.Header.Begun)
	to := c.e.At
	if cmd.GetFinishedAt() != nil {
		to = min(to, cmd.GetFinishedAt().AsTime().Sub(c.judge.Header.Begun))
	}
	if !c.judge.struck(from, to, append(slices.Clone(own), c.judge.executor(cmd))...) {
		c.lie("no fault struck while command %s was under way", cmd.GetCommandId())
	}
}

// silencedNow reports whether an agent is silent because of a fault at the moment of the question. In the end no agent
// is.
func (c *claim) silencedNow(name string) bool { return c.e.Live && c.judge.silenced(name, c.e.At) }

// failed: the operation has failed, and its error is judged by its reason.
func (c *claim) failed() {
	if c.op == nil {
		c.lie("it names no operation")
		return
	}
	if c.op.GetPhase() != baremetalv1.Operation_FAILED {
		c.lie("the operation is %s", c.op.GetPhase())
	}
}

func (c *claim) canceled() {
	if c.op == nil || c.op.GetPhase() != baremetalv1.Operation_CANCELED {
		c.lie("the operation is %s", c.op.GetPhase())
		return
	}
	c.askedToCancel()
}

// askedToCancel: a client has asked for the cancel, and was not refused.
func (c *claim) askedToCancel() {
	if !slices.ContainsFunc(c.judge.Calls, func(x check.Call) bool {
		return x.Method == check.Cancel && x.Operation == c.op.GetOperationId() && x.Outcome != check.Refused
	}) {
		c.lie("no client has cancelled it")
	}
}

func (c *claim) cancelling() {
	c.active()
	if c.op != nil {
		c.askedToCancel()
	}
}

func (c *claim) succeeded() {
	if c.op == nil || c.op.GetPhase() != baremetalv1.Operation_SUCCEEDED {
		c.lie("the operation is %s", c.op.GetPhase())
	}
}

// active: these rules are about an operation that has not ended, so they never fit in the end.
func (c *claim) active() {
	if !c.e.Live {
		c.lie("nothing is under way")
	}
}

// ownTrouble: the controllers, or their database, were struck.
func (c *claim) ownTrouble() {
	c.active()
	if !c.judge.struck(c.e.At-recovery, c.e.At, own...) {
		c.lie("no fault has struck a controller or the database")
	}
}

// executorSilent: an agent that can act on the machine was struck, or what it is connected to.
func (c *claim) executorSilent() {
	c.active()
	if !c.judge.struck(c.e.At, c.e.At, append(slices.Clone(own), c.judge.reaching(c.a.GetMachineId())...)...) {
		c.lie("no fault has struck an agent of the machine, or a controller")
	}
}

// siteSilent: silence is counted only while the controllers listened, so only a fault of the site's agent explains it.
func (c *claim) siteSilent() {
	if !c.silencedNow(siteProgram) {
		c.lie("no fault has struck the agent of the site")
	}
}

// agentSilent is siteSilent for the machine's own agent.
func (c *claim) agentSilent() {
	if !slices.ContainsFunc(c.judge.reaching(c.a.GetMachineId()), c.silencedNow) {
		c.lie("no fault has struck the agent of the machine")
	}
}

// neverEnrolled: only the sentinel has no agent.
func (c *claim) neverEnrolled() {
	if len(c.judge.reaching(c.a.GetMachineId())) > 0 {
		c.lie("an agent has enrolled for the machine")
	}
}

// intervention: the condition that the rule reads holds; its cause is judged by its reason.
func (c *claim) intervention() {
	for _, x := range c.e.Machine.GetStatus().GetConditions() {
		if x.GetType() == "NeedsIntervention" && x.GetStatus() {
			return
		}
	}
	c.lie("the condition NeedsIntervention does not hold")
}

// installFailed: three installations have failed since the last that was done.
func (c *claim) installFailed() {
	const attempts = 3
	failures := 0
	for _, o := range c.finished(baremetalv1.Operation_REIMAGE) {
		switch o.GetPhase() {
		case baremetalv1.Operation_SUCCEEDED:
			failures = 0
		case baremetalv1.Operation_FAILED:
			failures++
		}
	}
	if failures < attempts && !c.e.Live {
		c.lie("%d installations have failed since the last that was done", failures)
	}
}

// finished returns the machine's operations of a type that have ended, in the order of their ends.
func (c *claim) finished(t baremetalv1.Operation_OperationType) []*baremetalv1.Operation {
	out := slices.DeleteFunc(c.asked(t), func(o *baremetalv1.Operation) bool { return o.GetFinishedAt() == nil })
	slices.SortStableFunc(out, func(a, b *baremetalv1.Operation) int {
		return a.GetFinishedAt().AsTime().Compare(b.GetFinishedAt().AsTime())
	})
	return out
}

// unusable: what the attention names is missing.
func (c *claim) unusable() {
	switch r := c.a.GetReason(); r {
	case "NOT_PROVISIONED":
		all := c.finished(baremetalv1.Operation_REIMAGE)
		if n := len(all); !c.e.Live && n > 0 && all[n-1].GetPhase() == baremetalv1.Operation_SUCCEEDED {
			c.lie("the last reimage, %s, was done", all[n-1].GetOperationId())
		}
	case "NODE_OFFLINE", "MACHINE_UNREACHABLE":
		if w, known := c.judge.world[c.a.GetMachineId()]; known && !w.On || c.e.Live {
			return
		}
		c.lie("the machine is on, and its agent connected")
	default:
		c.unjudged("attention %q", r)
	}
}

// life: a node of these worlds is approved by a request to install it, and by no person.
func (c *claim) life() {
	state := c.e.Machine.GetStatus().GetNodeState()
	switch text := c.a.GetSummary(); {
	case strings.Contains(text, "and not approved yet"):
		if state != baremetalv1.NodeState_NODE_STATE_DISCOVERED {
			c.lie("the node is %s", state)
		}
	case strings.Contains(text, "is approved, and waits to be installed"):
		if state != baremetalv1.NodeState_NODE_STATE_PENDING || len(c.asked(baremetalv1.Operation_REIMAGE)) == 0 {
			c.lie("the node is %s, and nothing has approved it", state)
		}
	case strings.Contains(text, "is installed, and waits to be verified"):
		if state != baremetalv1.NodeState_NODE_STATE_INSTALLED || !c.e.Live && c.judge.world[c.a.GetMachineId()].Image == "" {
			c.lie("the node is %s, and its disk holds %q", state, c.judge.world[c.a.GetMachineId()].Image)
		}
	default:
		c.unjudged("a node that is %s", state)
	}
}

// asked returns the machine's operations of a type.
func (c *claim) asked(t baremetalv1.Operation_OperationType) []*baremetalv1.Operation {
	return slices.DeleteFunc(slices.Clone(c.judge.Operations), func(o *baremetalv1.Operation) bool {
		return o.GetMachineId() != c.a.GetMachineId() || o.GetType() != t
	})
}
