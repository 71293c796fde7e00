package command

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
)

// Bulk is work on several machines: a rollout, however few they are.
type Bulk struct {
	Targets     Targets
	maxInFlight int32
	maxFailures int32
	// Dry begins nothing; Yes asks for nothing.
	Dry, Yes bool
	// ValidateOnly asks the call itself, as though the machines were in maintenance, and begins nothing.
	ValidateOnly bool
	// Comment goes into the audit log.
	Comment string
	// FailedPercent stops the rollout where no flag sets it; 0 stops it at the first failure.
	FailedPercent int32
	// alone: the call is one operation on the one machine that is named, and no rollout.
	alone bool
}

// Register adds the flags to a command that has those of WorkFlags, and of its own.
func (b *Bulk) Register(a *App, cmd *cobra.Command) {
	b.Targets.Register(a, cmd)
	f := cmd.Flags()
	f.Int32Var(&b.maxInFlight, "max-in-flight", 0, "machines under work at a time (default: what budgets admit; "+
		"without one, a tenth of those in service)")
	f.Int32Var(&b.maxFailures, "max-failures", 0, "pause when so many machines have failed (default: "+b.gateText()+")")
	if f.Lookup("yes") == nil {
		f.BoolVar(&b.Yes, "yes", false, "do not ask before several machines are worked on")
	}
	if f.Lookup("dry-run") == nil {
		f.BoolVar(&b.Dry, "dry-run", false, "begin nothing, and say what would happen on which machines")
	}
	f.BoolVar(&b.ValidateOnly, "validate-only", false,
		"begin nothing, and check the call as though the machines were in maintenance")
}

func (b *Bulk) gateText() string {
	if b.FailedPercent > 0 {
		return fmt.Sprintf("%d %%", b.FailedPercent)
	}
	return "1"
}

// Single is the one machine that the words name, where the verb is an operation on it and no rollout.
func (b *Bulk) Single(args []string) (string, bool) {
	if b.Dry {
		return "", false
	}
	return b.Targets.Single(args)
}

// StartOn is a call that starts work on a machine.
type StartOn func(
	ctx context.Context, svc *Services, machine, requestID string, stepSeconds int32,
) (*pb.Operation, error)

// WorkOn starts an operation on the one machine that is named, or a rollout of the same over several.
func (a *App) WorkOn(
	cmd *cobra.Command, args []string, b *Bulk, w *WorkFlags, spec *pb.RolloutSpec, call StartOn,
) error {
	if machine, ok := b.Single(args); ok {
		if b.ValidateOnly {
			return a.validate(cmd, args, machine, w, call)
		}
		return a.Work(
			cmd,
			machine,
			w,
			func(ctx context.Context, svc *Services, id string, secs int32) (*pb.Operation, error) {
				return call(ctx, svc, machine, id, secs)
			},
		)
	}
	_, b.alone = b.Targets.Single(args)
	seconds, err := w.StepSeconds()
	if err != nil {
		return err
	}
	if seconds > 0 && spec.GetParams() != nil {
		spec.Params["timeout_seconds"] = strconv.Itoa(int(seconds))
	}
	return a.Roll(cmd, b, w, args, spec)
}

// Roll begins a rollout over the machines, or finds the one that the same request has begun, and shows it. spec is the
// work.
func (a *App) Roll(cmd *cobra.Command, b *Bulk, w *WorkFlags, args []string, spec *pb.RolloutSpec) error {
	ctx := cmd.Context()
	svc := a.Services()
	repeat := w.RequestID != ""
	id := a.Request(w)
	if repeat {
		// The rollout may be under way: its machines are busy now, and a preview would not be the same any more.
		r, err := svc.Rollouts.ListRollouts(ctx, &pb.ListRolloutsRequest{Filter: "request_id=" + strconv.Quote(id)})
		if err != nil {
			return err
		}
		if all := r.GetRollouts(); len(all) == 1 {
			return a.showRollout(cmd, svc, w, all[0])
		}
	}
	spec.MaxInFlight = b.maxInFlight
	var err error
	if b.ValidateOnly { // nothing is kept, a selection neither
		spec.Filter, err = a.filterOf(ctx, svc, &b.Targets, args)
	} else {
		spec.SelectionId, err = a.selected(ctx, svc, &b.Targets, args, id)
	}
	if err != nil {
		return err
	}
	switch {
	case b.maxFailures > 0:
		spec.TotalGate = &pb.RolloutGate{Failures: b.maxFailures}
	case b.FailedPercent > 0:
		spec.TotalGate = &pb.RolloutGate{Percent: b.FailedPercent}
	}
	if b.ValidateOnly {
		return a.validateRollout(cmd, args, svc,
			&pb.CreateRolloutRequest{RequestId: id, Spec: spec, Comment: b.Comment, ValidateOnly: true})
	}
	p, err := svc.Rollouts.PreviewRollout(ctx, &pb.PreviewRolloutRequest{Spec: spec})
	if err != nil {
		return err
	}
	if b.Dry {
		begin := Line(cmd, args)
		if err := a.Print(p, func() string { return a.Style().RolloutPreview(p, a.Wide(), begin) },
			p.GetDigest()); err != nil {
			return err
		}
		return ExitByPreview(p, b.alone)
	}
	a.noteRefused(p)
	if n := ready(p); n > 0 {
		if err := a.ConfirmCount(b.Yes, consequence(cmd, p), n); err != nil {
			return err
		}
	}
	ro, err := svc.Rollouts.CreateRollout(ctx,
		&pb.CreateRolloutRequest{RequestId: id, Spec: spec, Digest: p.GetDigest(), Comment: b.Comment})
	if err != nil {
		return err
	}
	return a.showRollout(cmd, svc, w, ro)
}

func (a *App) showRollout(cmd *cobra.Command, svc *Services, w *WorkFlags, ro *pb.Rollout) error {
	if !w.Waits() {
		a.Note("To follow it: ingot rollout watch %s", ro.GetRolloutId())
		return a.Print(ro, func() string { return a.Style().Rollout(ro) }, ro.GetRolloutId())
	}
	return a.WatchRollout(cmd.Context(), svc, ro.GetRolloutId())
}

// ready counts the machines that would be worked on.
func ready(p *pb.RolloutPreview) int {
	n := 0
	for _, w := range p.GetWaves() {
		n += int(w.GetTally().GetMachines())
	}
	return n
}

// noteRefused prints the machines that are left out, by reason.
func (a *App) noteRefused(p *pb.RolloutPreview) {
	byReason := map[string][]string{}
	var reasons []string
	text := map[string]string{}
	for _, m := range p.GetMachines() {
		if m.GetState() != pb.RolloutMachine_SKIPPED {
			continue
		}
		if byReason[m.GetReason()] == nil {
			reasons = append(reasons, m.GetReason())
			text[m.GetReason()] = m.GetMessage()
		}
		byReason[m.GetReason()] = append(byReason[m.GetReason()], m.GetMachineId())
	}
	for _, r := range reasons {
		names := byReason[r]
		slices.SortFunc(names, CompareNames)
		a.Note("left out: %s: %s (%s)", view.NameList(names), view.Clean(text[r]), r)
	}
	for _, u := range p.GetBudgets() {
		a.Note("budget %s allows %d %s; %d would be used at once: the rest waits", u.GetName(), u.GetLimit(), u.GetKind(),
			u.GetWanted())
	}
	for _, name := range p.GetApprovalPolicies() {
		a.Note("approval policy %s: the rollout waits for ingot rollout approve by another person", view.Clean(name))
	}
}

// consequence is what a person agrees to.
func consequence(cmd *cobra.Command, p *pb.RolloutPreview) string {
	text := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	if p.GetDestructive() {
		text += ": the data on the disks of %d machines is lost"
	} else {
		text += " %d machines"
	}
	if n := p.GetInService(); n > 0 {
		text += fmt.Sprintf("; %d of them in service", n)
	}
	return text + "."
}

// ConfirmCount asks before something is done to so many machines. what holds a %d for their number.
func (a *App) ConfirmCount(yes bool, what string, n int) error {
	text := fmt.Sprintf(what, n)
	if n == 1 {
		text = strings.Replace(text, "1 machines", "1 machine", 1)
	}
	return a.Confirm(yes, text, strconv.Itoa(n))
}
