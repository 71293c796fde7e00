package decider

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/situation"
)

// Situation is what questions are asked of.
type Situation = situation.Situation

// question is a pure function that decides one thing.
type question func(Situation) verdict

// verdict is the answer to a question: moves in their order, and the question to ask of the situation after them; nil
// for none.
type verdict struct {
	moves []move
	then  question
}

func does(moves ...move) verdict { return verdict{moves: moves} }

// after returns the verdict with other moves before its own.
func (v verdict) after(moves ...move) verdict {
	return verdict{moves: append(moves, v.moves...), then: v.then}
}

// draft applies verdicts. It copies parts of the snapshot before it changes them, and panics on a transition that a
// state table lacks.
type draft struct {
	now   time.Time
	world operation.World
	op    operation.Operation
	cmd   *operation.Command
	// ownSteps and ownCommand report whether the steps and the command are copies already.
	ownSteps, ownCommand bool

	opChanged  bool
	cmdChanged bool
	cmdNew     bool
	retired    *operation.Command // the attempt that a new command of this same decision replaces
	out        operation.Decision
	// seen, where it is set, takes each verdict with the situation of which it was asked.
	seen func(Situation, verdict)
}

func newDraft(s *operation.Snapshot, now time.Time) *draft {
	d := drafts.Get().(*draft)
	d.now, d.world, d.op, d.cmd = now, s.World, s.Op, s.Command
	return d
}

// drafts are used again: a draft is large, and is only alive during one decision.
var drafts = sync.Pool{New: func() any { return new(draft) }}

// free returns the draft for the next decision. It refers to nothing then.
func (d *draft) free() {
	*d = draft{}
	drafts.Put(d)
}

func (d *draft) look() Situation { return situation.Look(&d.op, d.cmd, &d.world, d.now) }

// ask applies the verdict of a question, and those of the questions that follow.
func (d *draft) ask(q question) {
	for q != nil {
		q = d.askOnce(q)
	}
}

// askOnce applies the verdict of one question, and returns the next question.
func (d *draft) askOnce(q question) question {
	s := d.look()
	v := q(s)
	if d.seen != nil {
		d.seen(s, v)
	}
	for _, m := range v.moves {
		m.apply(d)
	}
	return v.then
}

// decision returns the answer, in which an operation that does not change is the stored one.
func (d *draft) decision(stored *operation.Operation) operation.Decision {
	out := d.out
	out.Op = d.op
	out.OpChanged = d.opChanged
	out.Changed = d.opChanged || d.cmdChanged // a command that retires another is a change itself
	if d.retired != nil {
		out.Commands = append(out.Commands, d.retired)
	}
	if d.cmdChanged && d.cmd != nil {
		out.Commands = append(out.Commands, d.cmd)
	}
	if d.cmdNew {
		out.NewCommand = d.cmd
	}
	if !d.opChanged {
		out.Op = *stored
	}
	return out
}

// step returns the current step of the draft's own copy.
func (d *draft) step() *operation.Step {
	if !d.ownSteps {
		d.op.Steps, d.ownSteps = slices.Clone(d.op.Steps), true
	}
	return &d.op.Steps[d.op.CurrentStep]
}

// command returns the draft's own copy of the command, which is to be stored.
func (d *draft) command() *operation.Command {
	if !d.ownCommand {
		d.cmd, d.ownCommand = d.cmd.Clone(), true
	}
	d.cmdChanged = true
	return d.cmd
}

func (d *draft) note(kind, message string) {
	d.opChanged = true
	d.out.Notes = append(
		d.out.Notes,
		operation.Note{Kind: kind, Step: d.op.CurrentStage, Message: message, Phase: d.op.Phase},
	)
}

func (d *draft) setPhase(p operation.Phase) {
	operation.MayMove(operation.PhaseTable, d.op.Phase, p)
	d.op.Phase, d.opChanged = p, true
}

func (d *draft) setStep(st operation.StepState) {
	s := d.step()
	operation.MayMove(operation.StepTable, s.State, st)
	s.State, d.opChanged = st, true
}

func (d *draft) setCommand(cs operation.CommandState) *operation.Command {
	c := d.command()
	operation.MayMove(operation.CommandTable, c.State, cs)
	c.State = cs
	if operation.IsFinalCommand(cs) && c.FinishedAt.IsZero() {
		c.FinishedAt = d.now
	}
	return c
}

// prove adds to the operation's evidence, in a map of its own.
func (d *draft) prove(more map[string]string) {
	d.op.Evidence = merged(d.op.Evidence, more)
}

// merged returns a new map with the entries of both; those of the second count.
func merged(a, b map[string]string) map[string]string {
	out := make(map[string]string, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}
