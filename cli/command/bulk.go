package command

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/cli/names"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/ingot-metal/ingot/internal/ids"
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
	// alone is the call on the one machine that is named, which is no rollout; nil for several machines.
	alone *aloneCall
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

// aloneCall is a call on one machine. validate makes it, and begins nothing.
type aloneCall struct {
	validate func(ctx context.Context, svc *Services, requestID string) (view.Work, error)
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
	seconds, err := w.StepSeconds()
	if err != nil {
		return err
	}
	if machine, ok := b.Targets.Single(args); ok {
		b.alone = &aloneCall{func(ctx context.Context, svc *Services, id string) (view.Work, error) {
			b.ValidateOnly = true
			defer func() { b.ValidateOnly = false }()
			return call(ctx, svc, machine, id, seconds)
		}}
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
	b.bound(spec)
	if repeat && b.alone == nil {
		ro, err := b.begunBefore(ctx, a, svc, args, spec, id)
		if err != nil {
			return err
		}
		if ro != nil {
			return b.showAgain(cmd, a, svc, w, ro)
		}
	}
	// A call that begins nothing keeps no selection: its request id would stand for the machines of now when the work
	// begins.
	var err error
	if b.ValidateOnly || b.Dry {
		spec.Filter, err = a.filterOf(ctx, svc, &b.Targets, args)
	}
	switch {
	case b.Dry && errors.Is(err, errManyNames):
		spec.SelectionId, err = a.selected(ctx, svc, &b.Targets, args, ids.New("req"))
	case spec.GetFilter() == "" && err == nil:
		spec.SelectionId, err = a.selected(ctx, svc, &b.Targets, args, id)
	}
	if err != nil {
		return err
	}
	if b.alone != nil {
		return b.foretellAlone(cmd, args, a, svc, spec, id)
	}
	if b.ValidateOnly {
		ro, err := a.validateRollout(cmd, args, svc,
			&pb.CreateRolloutRequest{RequestId: id, Spec: spec, Comment: b.Comment, ValidateOnly: true})
		return b.partly(ro.GetTally(), err)
	}
	p, err := svc.Rollouts.PreviewRollout(ctx, &pb.PreviewRolloutRequest{Spec: spec})
	if err != nil {
		return err
	}
	if b.Dry {
		return b.partly(tallyOf(p), printPreview(cmd, args, a, p, false))
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
	return b.partly(ro.GetTally(), a.showRollout(cmd, svc, w, ro))
}

// partly returns the error of work that leaves out machines that were named. Where a filter selects the machines, those
// that the work does not suit are left out as a matter of course.
func (b *Bulk) partly(t *pb.RolloutTally, err error) error {
	if err != nil || b.Targets.terms() != "" || t.GetSkipped() == 0 {
		return err
	}
	return &ExitError{Code: ExitFailed, Err: fmt.Errorf("%d of %d machines that were named are left out", t.GetSkipped(),
		t.GetMachines())}
}

// tallyOf counts the machines of a preview, and those that are left out.
func tallyOf(p *pb.RolloutPreview) *pb.RolloutTally {
	t := &pb.RolloutTally{Machines: int32(min(len(p.GetMachines()), math.MaxInt32))}
	for _, m := range p.GetMachines() {
		if m.GetState() == pb.RolloutMachine_SKIPPED {
			t.Skipped++
		}
	}
	return t
}

// bound sets the limits that flags give.
func (b *Bulk) bound(spec *pb.RolloutSpec) {
	spec.MaxInFlight = b.maxInFlight
	switch {
	case b.maxFailures > 0:
		spec.TotalGate = &pb.RolloutGate{Failures: b.maxFailures}
	case b.FailedPercent > 0:
		spec.TotalGate = &pb.RolloutGate{Percent: b.FailedPercent}
	}
}

// begunBefore returns the rollout that the same request has begun; nil if there is none. It refuses a request of other
// work, or on other machines. The rollout may be under way: its machines are busy now, and a preview would not be the
// same any more.
func (b *Bulk) begunBefore(
	ctx context.Context, a *App, svc *Services, args []string, spec *pb.RolloutSpec, id string,
) (*pb.Rollout, error) {
	r, err := svc.Rollouts.ListRollouts(ctx, &pb.ListRolloutsRequest{Filter: "request_id=" + strconv.Quote(id)})
	if err != nil || len(r.GetRollouts()) != 1 {
		return nil, err
	}
	old := r.GetRollouts()[0]
	same, err := b.Targets.sameMachines(ctx, a, svc, args, old)
	if err != nil {
		return nil, err
	}
	if !same {
		return nil, &ExitError{Code: ExitRefused, Err: fmt.Errorf(
			"request id %q has begun %s, on other machines (REQUEST_ID_REUSED); leave --request-id out to get a new one",
			id,
			old.GetRolloutId(),
		)}
	}
	again := proto.CloneOf(spec)
	again.SelectionId, again.Filter = old.GetSpec().GetSelectionId(), old.GetSpec().GetFilter()
	// The server compares the work, the seed too, which no answer shows.
	return svc.Rollouts.CreateRollout(ctx, &pb.CreateRolloutRequest{RequestId: id, Spec: again, Digest: old.GetDigest(),
		Comment: b.Comment, ValidateOnly: b.Dry || b.ValidateOnly})
}

// sameMachines reports whether a rollout is of the machines that are chosen. A filter is compared by its text, as long
// as the controller keeps that.
func (t *Targets) sameMachines(
	ctx context.Context, a *App, svc *Services, args []string, old *pb.Rollout,
) (bool, error) {
	names, err := a.names(t, args)
	if err != nil {
		return false, err
	}
	if names != nil {
		all, err := All[*pb.RolloutMachine](ctx, 0, svc.Rollouts.ListRolloutMachines,
			&pb.ListRolloutMachinesRequest{RolloutId: old.GetRolloutId()})
		its := Names(all, (*pb.RolloutMachine).GetMachineId)
		slices.Sort(its)
		return slices.Equal(slices.Sorted(slices.Values(names)), its), err
	}
	filter := old.GetSpec().GetFilter()
	if id := old.GetSpec().GetSelectionId(); id != "" {
		kept, err := svc.Rollouts.GetSelection(ctx, &pb.GetSelectionRequest{SelectionId: id})
		switch status.Code(err) {
		case codes.OK:
		case codes.NotFound, codes.PermissionDenied: // it has expired
			return true, nil
		default:
			return false, err
		}
		filter = kept.GetFilter()
	}
	return filter == t.terms(), nil
}

// showAgain shows a rollout that the same request has begun. A call that begins nothing waits for nothing.
func (b *Bulk) showAgain(cmd *cobra.Command, a *App, svc *Services, w *WorkFlags, ro *pb.Rollout) error {
	if ro.GetTally().GetSkipped() > 0 {
		skipped, err := All[*pb.RolloutMachine](cmd.Context(), 0, svc.Rollouts.ListRolloutMachines,
			&pb.ListRolloutMachinesRequest{RolloutId: ro.GetRolloutId(), Filter: "state=SKIPPED"})
		if err != nil {
			return err
		}
		noteLeftOut(a, skipped)
	}
	if !b.Dry && !b.ValidateOnly {
		return b.partly(ro.GetTally(), a.showRollout(cmd, svc, w, ro))
	}
	a.Note("The same request has begun %s: nothing more would begin.", ro.GetRolloutId())
	return b.partly(ro.GetTally(), a.Print(ro, func() string { return a.Style().Rollout(ro) }, ro.GetRolloutId()))
}

// foretellAlone previews a call on one machine. The preview judges the machine as it is; the call itself knows what its
// request id stands for, who must approve the work, and what fits one machine only.
func (b *Bulk) foretellAlone(
	cmd *cobra.Command, args []string, a *App, svc *Services, spec *pb.RolloutSpec, id string,
) error {
	ctx := cmd.Context()
	a.Subject.Machine = args[0]
	work, refused := b.alone.validate(ctx, svc, id)
	switch {
	case apiclient.Reason(refused) == pb.Reason_REQUEST_ID_REUSED:
		return refused
	case refused == nil && view.BegunAs(work) != "":
		a.Note("The same request has begun %s: nothing more would begin.", view.BegunAs(work))
		return a.Print(work, func() string { return view.Validated(work, view.BegunAs(work), Line(cmd, args)) },
			view.BegunAs(work))
	}
	if spec.GetSeed().GetHostname() != "" {
		spec.Seed = proto.CloneOf(spec.GetSeed())
		spec.Seed.Hostname = ""
	}
	p, err := svc.Rollouts.PreviewRollout(ctx, &pb.PreviewRolloutRequest{Spec: spec})
	if err != nil {
		return err
	}
	if ready(p) > 0 && refused != nil {
		return refused
	}
	return printPreview(cmd, args, a, p, true)
}

func printPreview(cmd *cobra.Command, args []string, a *App, p *pb.RolloutPreview, alone bool) error {
	if len(p.GetMachines()) == 0 {
		return noMatch(p.GetSpec().GetFilter())
	}
	begin := Line(cmd, args)
	if a.Document() {
		noteLeftOut(a, p.GetMachines())
	}
	if err := a.Print(p, func() string { return a.Style().RolloutPreview(p, a.Wide(), begin) },
		p.GetDigest()); err != nil {
		return err
	}
	return ExitByPreview(p, alone)
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

// noteLeftOut prints the machines that are left out, by reason.
func noteLeftOut(a *App, machines []*pb.RolloutMachine) {
	byReason := map[string][]string{}
	var reasons []string
	text := map[string]string{}
	for _, m := range machines {
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
		left := byReason[r]
		slices.SortFunc(left, names.Compare)
		a.Note("left out: %s: %s (%s)", view.NameList(left), view.Clean(text[r]), r)
	}
}

// noteRefused prints the machines that are left out, by reason, and what else holds the work up.
func (a *App) noteRefused(p *pb.RolloutPreview) {
	noteLeftOut(a, p.GetMachines())
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
