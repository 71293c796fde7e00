package situation

import (
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// Situation is an operation at one moment. The functions that decide take one, and change nothing that it points to.
type Situation struct {
	Now   time.Time
	Op    *operation.Operation
	World *operation.World
	// Command is the latest attempt of the operation; nil before the first.
	Command *operation.Command
	// Step is the current one.
	Step *operation.Step
	// StepKind and CommandKind are the declarations of their kinds. Without a command the latter is of no kind.
	StepKind, CommandKind *kind.Declaration

	// Host is the newest agent of a system on the machine's disk, live or not, and Installer the newest live installer of
	// the operation; nil where there is none.
	Host, Installer *fleet.Candidate

	// Over reports whether the operation has ended, and Canceling whether a cancel waits for the command's executor.
	Over, Canceling bool
	// Settled reports whether no command is under way. Granted and Claimed report whether the command was granted, and
	// whether its executor has reported a success that waits for its evidence.
	Settled, Granted, Claimed bool
	// OfStep reports whether the command is an attempt of the current step.
	OfStep bool
	// ByHost, ByInstaller and BySite report what kind of agent executes the command.
	ByHost, ByInstaller, BySite bool

	// TurnedBack reports whether the machine returns to its own system, because the installer has refused.
	TurnedBack bool
	// Entering reports whether the command brings the machine into the installer.
	Entering bool
	// CyclesPower reports whether the command switches the machine off and on through its BMC.
	CyclesPower bool
	// Boots is the system that the command is meant to bring up; empty for a command that boots nothing.
	Boots operation.System

	// Blocked reports whether nothing may run on the machine. Forgets reports whether the step only makes the provider
	// forget a machine that its workflow has retired, which may be done to a blocked one.
	Blocked, Forgets bool
	// LacksSlot reports whether the operation needs a slot of the budgets and holds none.
	LacksSlot bool
}

var (
	noStep operation.Step
	noKind kind.Declaration
)

// Look returns the situation of an operation and its latest command, which may be nil, in a world at a moment.
func Look(op *operation.Operation, cmd *operation.Command, w *operation.World, now time.Time) Situation {
	s := Situation{
		Now: now, Op: op, World: w, Command: cmd, Step: &noStep, StepKind: &noKind, CommandKind: &noKind,
		Host: fleet.Host(w.Candidates), Installer: fleet.Installer(w.Candidates, op.ID),
		Over: operation.IsTerminal(op.Phase), Canceling: !op.CancelRequested.IsZero(), Settled: cmd.Settled(),
		LacksSlot: op.NeedsSlot() && !w.SlotHeld,
	}
	if op.CurrentStep < len(op.Steps) {
		s.Step = &op.Steps[op.CurrentStep]
		s.StepKind, s.TurnedBack = kind.Lookup(s.Step.Kind), operation.TurnedBack(*s.Step)
	}
	if cmd != nil {
		s.CommandKind = kind.Lookup(cmd.Kind)
		s.Granted, s.Claimed = cmd.State == operation.Granted, !cmd.ClaimedAt.IsZero()
		s.OfStep = cmd.StepIdx == op.CurrentStep
		s.ByHost, s.ByInstaller, s.BySite = cmd.ExecutorRole == "host", cmd.ExecutorRole == "installer",
			cmd.ExecutorRole == "site"
		s.Entering = s.OfStep && s.StepKind.NeedsInstaller && s.CommandKind.Path != "" && !s.TurnedBack
		s.CyclesPower = s.CommandKind.Path == kind.PathBMC
		s.Boots = s.boots()
	}
	removes := op.Type == fleet.Decommission && w.Stage.Mode == workflow.FullDecommission
	s.Blocked = w.Machine.Conditions[fleet.RMA] || w.Machine.Conditions[fleet.RetiredFlag] && !removes
	s.Forgets = op.Type == fleet.Decommission && s.StepKind.Route == kind.ThroughProvider &&
		s.Step.Mode == workflow.ForgetAction && !w.Machine.Conditions[fleet.RMA]
	return s
}

// Past reports whether a deadline is over. No deadline ends while agents come back after their controllers were away.
func (s Situation) Past(deadline time.Time) bool {
	return !s.Now.Before(deadline) && !s.Now.Before(s.World.CaughtUpAt)
}

// Outlived reports whether the command's time ran out while its controllers were away, before it was granted.
func (s Situation) Outlived() bool {
	return s.Command.GrantedAt.IsZero() && !s.Now.Before(s.Command.Deadline) && !s.Past(s.Command.Deadline)
}

// GivenUpAt returns the time at which the engine stops waiting for a granted command.
func (s Situation) GivenUpAt() time.Time {
	if !s.Canceling {
		return s.Command.Deadline
	}
	return operation.Earliest(s.Command.Deadline, s.Op.CancelRequested.Add(operation.CancelPatience))
}

// Due reports whether the wait for a granted command is over.
func (s Situation) Due() bool { return s.Past(s.GivenUpAt()) }

// Limit returns the time at which the current try of the step has waited too long for an executor.
func (s Situation) Limit() time.Time {
	from := s.Step.StartedAt
	if s.Step.RetryAt.After(from) {
		from = s.Step.RetryAt
	}
	return from.Add(s.Step.Timeout)
}

// SoonOr returns the time of the next regular evaluation, or a limit that comes before.
func (s Situation) SoonOr(limit time.Time) time.Time {
	return operation.Earliest(limit, s.Now.Add(operation.LookAgain))
}
