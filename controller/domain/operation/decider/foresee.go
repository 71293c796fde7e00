package decider

import (
	"fmt"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/situation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Foresight is the answer of all steps of an operation before the first of them begins.
type Foresight struct {
	// Refusal is the first failure that a step would meet at once; nil where none is known. Step names the step.
	Refusal *fleet.Refusal
	Step    string
	// ThroughBMC reports whether an agent of the site speaks to the machine's BMC for a step.
	ThroughBMC bool
	// NotAsked lists what only the work itself can find out, one sentence each.
	NotAsked []string
}

// foreseen stands for evidence that an earlier step of the same operation will leave.
const foreseen = "foreseen"

// Foresee runs the decision of every step on the world as it is now, each as if the steps before it had succeeded. It
// is the code that decides during the work, so that a preview and the work cannot differ in what they ask. replaced
// reports that other work replaces the machine's system before.
func Foresee(s operation.Snapshot, replaced bool, now time.Time) Foresight {
	f := foresight{now: now, w: s.World, op: s.Op.Clone()}
	f.w.SlotHeld, f.w.Unfit = true, nil // a full budget is waited for, and the caller has compared the image
	if f.op.Evidence == nil {
		f.op.Evidence = map[string]string{}
	}
	if replaced {
		f.replaceSystem()
	}
	for i := range f.op.Steps {
		if f.step(i); f.out.Refusal != nil {
			break
		}
	}
	return f.out
}

// foresight is the state between two steps.
type foresight struct {
	now time.Time
	w   operation.World
	op  operation.Operation
	// replaced reports that an earlier step has replaced the machine's system; its agent is another one then.
	replaced bool
	out      Foresight
}

// step asks one step, and assumes that it succeeds.
func (f *foresight) step(i int) {
	s := f.op.Steps[i]
	if !f.provenByWork(s) {
		if f.replaced && kind.Of(s.Kind).AsksHost {
			f.notAsked("step " + s.Name + ": the system that is written has not reported what it can do")
		} else {
			f.decide(i)
		}
	}
	if f.out.Refusal == nil {
		f.succeed(i)
	}
}

// provenByWork reports whether what the step compares does not exist before the work: the new system, or its first
// start.
func (f *foresight) provenByWork(s operation.Step) bool {
	of := kind.Of(s.Kind)
	boots := of.ProvenByBoot || of.Control == kind.AwaitsAgent
	return s.Mode == workflow.VerifyNode || f.replaced && boots
}

func (f *foresight) decide(i int) {
	d := newDraft(&operation.Snapshot{Op: f.op, World: f.w}, f.now)
	defer d.free()
	d.op.Phase, d.op.CurrentStep, d.op.CurrentStage = operation.Running, i, f.op.Steps[i].Name
	s := d.step()
	s.State, s.StartedAt, s.RetryAt = operation.StepRunning, f.now, time.Time{}
	attemptOnly(d)
	if madeToken(d) {
		attemptOnly(d)
	}
	if d.op.Phase == operation.Failed {
		f.out.Refusal = &fleet.Refusal{Reason: d.op.Error.Code, Message: d.op.Error.Message}
		f.out.Step = f.op.Steps[i].Name
		return
	}
	if d.cmd == nil && f.op.Steps[i].LacksExecutor(d.op.WaitReason) {
		f.notAsked(lacking(f.op.Steps[i], d.op.WaitReason))
	}
	f.out.ThroughBMC = f.out.ThroughBMC || throughBMC(d.look())
	f.w.Machine = d.world.Machine
	if p := d.out.Machine.SetPhase; p != "" {
		f.w.Machine.Phase = p
	}
	if d.cmd != nil && kind.Of(d.cmd.Kind).SetsNextBoot && d.cmd.ExecutorRole == "host" {
		f.op.Evidence[evidence.BootNext] = foreseen
	}
}

// attemptOnly attempts the current step, and asks nothing about the steps after it.
func attemptOnly(d *draft) {
	i := d.op.CurrentStep
	for q := question(attempt); q != nil && d.op.Steps[i].State == operation.StepRunning; {
		q = d.askOnce(q)
	}
}

// throughBMC reports whether the command is one that a site agent carries out through the machine's BMC.
func throughBMC(s Situation) bool {
	return s.BySite && s.World.Provider == fleet.AgentProvider && s.CommandKind.UsesBMC
}

// madeToken lets the first of the two commands of a join succeed, and reports whether the step has such a command.
func madeToken(d *draft) bool {
	s := d.look()
	if s.Command == nil || s.Command.Kind != s.StepKind.Token {
		return false
	}
	c := d.command()
	c.State, c.Outcome, c.FinishedAt = operation.Done, operation.OutcomeSucceeded, d.now
	d.cmdChanged = false
	return true
}

// lacking returns the sentence about a step that would wait for an agent.
func lacking(s operation.Step, reason string) string {
	if reason == operation.WaitNobody {
		return fmt.Sprintf("step %s: no agent can reach the machine now; the work waits %s for one, and fails after that",
			s.Name, operation.NobodyGrace)
	}
	return fmt.Sprintf(
		"step %s: no agent that could take it is connected now; the work waits for one (%s)",
		s.Name,
		reason,
	)
}

// succeed changes the world as the success of the step does.
func (f *foresight) succeed(i int) {
	s := &f.op.Steps[i]
	s.State = operation.StepSucceeded
	flow := f.w.Stage.Kind
	if g, ok := workflow.FindFor(flow, workflow.StageOf(flow, s.Name), f.w.Provider); ok && g.Gives != "" {
		f.op.Evidence[g.Gives] = foreseen
	}
	inPlace := situation.Look(&f.op, nil, &f.w, f.now).InPlace(s.Kind)
	if !s.ReplacesSystem() || kind.Of(s.Kind).NeedsInstaller && inPlace {
		return
	}
	f.replaceSystem()
}

// replaceSystem makes the agent on the machine one that is gone.
func (f *foresight) replaceSystem() {
	f.replaced = true
	f.w.TargetAgentLive = false
	f.w.Candidates = slices.Clone(f.w.Candidates)
	for j := range f.w.Candidates {
		if c := &f.w.Candidates[j]; c.Role == "host" {
			c.Live, c.LastSeen = false, f.now
		}
	}
}

func (f *foresight) notAsked(sentence string) {
	if !slices.Contains(f.out.NotAsked, sentence) {
		f.out.NotAsked = append(f.out.NotAsked, sentence)
	}
}
