package health

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/names"
	"github.com/ingot-metal/ingot/cli/times"
	"github.com/ingot-metal/ingot/cli/view"
)

// fleetStatus is what the page of the fleet shows.
type fleetStatus struct {
	server *pb.ServerInfo
	sites  []siteStatus
	// attention are the first machines that need an operator, with their number.
	attention    []*pb.Machine
	rollouts     []*pb.Rollout
	work         *pb.FleetSummary
	budgets      []*pb.Budget
	slots        []*pb.BudgetSlot
	certificates []*pb.Agent
}

// siteStatus counts the machines of a site by effective state.
type siteStatus struct {
	site   string
	counts map[string]int32
}

const (
	// mostAttention bounds the machines that are named.
	mostAttention = 10
	// attentionOfOwn lists the machines that need an operator for a cause of their own.
	attentionOfOwn = "effective_state=ATTENTION,attention_reason!=NOT_OBSERVED"
	// certificateSoon is when the end of a certificate is near: agents renew theirs long before.
	certificateSoon = 7 * 24 * time.Hour
)

var effectiveStates = []string{"IDLE", "NEW", "BUSY", "MAINTENANCE", "ATTENTION", "BLOCKED"}

func (a commands) statusCmd() *cobra.Command {
	var watch bool
	every := 5 * time.Second
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the fleet on one page",
		Long: `Show the fleet on one page: machines by effective state and site, what needs a person and the
next command, what runs, a freeze, budgets in use, and agents whose certificates end within a week.

With --watch the page is read again and again until you interrupt it. A terminal shows the newest; elsewhere
each follows the one before, with -o json a line each. A page that cannot be read is named, with its cause.`,
		Example: "  ingot status\n  ingot status --watch --every 10s\n  ingot status -o json | jq .attention",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < time.Second {
				return command.Usagef("--every must be at least 1s")
			}
			if watch {
				return a.watchStatus(cmd.Context(), every)
			}
			return a.showStatus(cmd.Context(), a.app.Print)
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "go on with newer pages")
	cmd.Flags().DurationVar(&every, "every", every, "time between two pages of --watch")
	return cmd
}

// showStatus reads the page and prints it.
func (a commands) showStatus(
	ctx context.Context, show func(m proto.Message, text func() string, names ...string) error,
) error {
	s, err := a.readStatus(ctx)
	if err != nil {
		return err
	}
	doc, err := s.document(a.app.Now())
	if err != nil {
		return err
	}
	return show(doc, func() string { return s.text(a.app.Style(), a.app.Now()) }, s.server.GetControllerId())
}

// clearScreen moves the cursor to the upper left corner and erases everything (ECMA-48, CUP and ED).
const clearScreen = "\x1b[H\x1b[2J"

// watchStatus shows page after page. The first must be readable: a wrong address or token is found before the watch
// begins to be patient.
func (a commands) watchStatus(ctx context.Context, every time.Duration) error {
	pages := 0
	page := func(m proto.Message, text func() string, names ...string) error {
		pages++
		return a.app.Stream(m, func() string {
			head := "As of " + times.TimeOf(a.app.Now()) + ", every " + view.Duration(every) + ":\n\n"
			if !a.app.Config.OutTerminal {
				return head + text() + "\n"
			}
			if _, err := io.WriteString(a.app.RawOut, clearScreen); err != nil {
				return "" // the text fails for the same cause
			}
			return head + text()
		}, names[0])
	}
	for {
		err := a.showStatus(ctx, page)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && (pages == 0 || !apiclient.Transient(err)):
			return err
		case err != nil:
			a.app.Note("! not read at %s, the page above is older: %s", times.TimeOf(a.app.Now()), command.ErrorText(err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.app.Config.Clock.After(every):
		}
	}
}

func (a commands) readStatus(ctx context.Context) (*fleetStatus, error) {
	svc := a.app.Services()
	s := &fleetStatus{}
	var err error
	if s.server, err = svc.Admin.GetServerInfo(ctx, &pb.GetServerInfoRequest{}); err != nil {
		return nil, err
	}
	for _, read := range []func(context.Context, *command.Services) error{
		s.readSites, s.readAttention, s.readWork, s.readBudgets, s.readCertificates(a.app.Now()),
	} {
		if err := read(ctx, svc); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *fleetStatus) readSites(ctx context.Context, svc *command.Services) error {
	r, err := svc.Admin.ListSites(ctx, &pb.ListSitesRequest{})
	if err != nil {
		return err
	}
	var sites []string
	for _, site := range r.GetSites() {
		sites = append(sites, site.GetSite())
	}
	slices.SortFunc(sites, names.Compare)
	if len(sites) != 1 {
		sites = append(sites, "")
	}
	by := []string{"effective_state", "site"}
	count, err := svc.Machines.CountMachines(ctx, &pb.CountMachinesRequest{GroupBy: by})
	if apiclient.Reason(err) == pb.Reason_TOO_MANY_GROUPS { // more sites than fit on a page
		sites = []string{""}
		count, err = svc.Machines.CountMachines(ctx, &pb.CountMachinesRequest{GroupBy: by[:1]})
	}
	if err != nil {
		return err
	}
	for _, name := range sites {
		one := siteStatus{site: name, counts: map[string]int32{}}
		for _, g := range count.GetGroups() {
			if name == "" || name == g.GetValues()[1] {
				one.counts[g.GetValues()[0]] += g.GetCount()
			}
		}
		s.sites = append(s.sites, one)
	}
	return nil
}

func (s *fleetStatus) readAttention(ctx context.Context, svc *command.Services) error {
	r, err := svc.Machines.ListMachines(ctx,
		&pb.ListMachinesRequest{Filter: attentionOfOwn, PageSize: mostAttention})
	if apiclient.Reason(err) == pb.Reason_INVALID_FILTER { // a controller that knows no shared causes
		r, err = svc.Machines.ListMachines(ctx,
			&pb.ListMachinesRequest{Filter: "effective_state=ATTENTION", PageSize: mostAttention})
	}
	s.attention = r.GetMachines()
	return err
}

func (s *fleetStatus) readWork(ctx context.Context, svc *command.Services) error {
	for _, state := range []string{"PAUSED", "AWAITING_APPROVAL", "RUNNING", "STOPPING"} {
		r, err := svc.Rollouts.ListRollouts(ctx, &pb.ListRolloutsRequest{Filter: "state=" + state})
		if err != nil {
			return err
		}
		s.rollouts = append(s.rollouts, r.GetRollouts()...)
	}
	var err error
	s.work, err = svc.Machines.GetFleetSummary(ctx, &pb.GetFleetSummaryRequest{})
	return err
}

func (s *fleetStatus) readBudgets(ctx context.Context, svc *command.Services) error {
	r, err := svc.Budgets.ListBudgets(ctx, &pb.ListBudgetsRequest{})
	if err != nil {
		return err
	}
	s.budgets = r.GetBudgets()
	s.slots, err = command.All[*pb.BudgetSlot](ctx, 0, svc.Budgets.ListBudgetSlots, &pb.ListBudgetSlotsRequest{})
	return err
}

// readCertificates looks for agents that are away, and whose certificates end soon: those that are here renew theirs.
func (s *fleetStatus) readCertificates(now time.Time) func(context.Context, *command.Services) error {
	return func(ctx context.Context, svc *command.Services) error {
		agents, err := command.All[*pb.Agent](ctx, 0, svc.Admin.ListAgents, &pb.ListAgentsRequest{Filter: "connected=false"})
		for _, agent := range agents {
			if endsSoon(agent, now) {
				s.certificates = append(s.certificates, agent)
			}
		}
		return err
	}
}

// certificateEnd is when the last certificate of an agent that is not revoked ends.
func certificateEnd(agent *pb.Agent) time.Time {
	if c := lastCertificate(agent); c != nil {
		return c.GetNotAfter().AsTime()
	}
	return time.Time{}
}

// lastCertificate returns that of an agent's certificates that ends last; nil where all are revoked.
func lastCertificate(agent *pb.Agent) (last *pb.AgentCert) {
	for _, c := range agent.GetCerts() {
		if c.GetRevokedAt() == nil && (last == nil || c.GetNotAfter().AsTime().After(last.GetNotAfter().AsTime())) {
			last = c
		}
	}
	return last
}

// endsSoon reports whether the last certificate of an agent is about to end. An agent renews when a third of the time
// is left: a new certificate of a week is no sign of anything.
func endsSoon(agent *pb.Agent, now time.Time) bool {
	c := lastCertificate(agent)
	if c == nil {
		return false
	}
	end := c.GetNotAfter().AsTime()
	soon := min(certificateSoon, end.Sub(c.GetNotBefore().AsTime())/3)
	return end.After(now) && end.Before(now.Add(soon))
}

// failedSlots returns the number of slots that an operator must free: they no longer free themselves.
func (s *fleetStatus) failedSlots() int {
	n := 0
	for _, slot := range s.slots {
		if p := slot.GetOperationPhase(); p == "FAILED" || p == "CANCELED" {
			n++
		}
	}
	return n
}

func (s *fleetStatus) text(style view.Style, now time.Time) string {
	var b strings.Builder
	if s.server.GetFrozenSince() != nil {
		b.WriteString(style.Bad("The fleet is frozen") + " since " + view.Age(s.server.GetFrozenSince(), now) + ": " +
			view.Clean(s.server.GetFrozenBecause()) + "  → ingot server thaw\n\n")
	}
	if away := s.work.GetNotListeningSince(); away != nil {
		fmt.Fprintf(&b, "%s %s ago, catching up: %d agents have not come back, and the machines show what was known then\n\n",
			style.Warn("The controllers could not hear agents since"), view.Age(away, now), s.work.GetAgentsAwaited())
	}
	t := &view.Table{Header: append([]string{"SITE"}, effectiveStates...)}
	for _, site := range s.sites {
		row := []string{view.Clean(site.site)}
		if site.site == "" {
			row[0] = "all"
		}
		for _, state := range effectiveStates {
			row = append(row, fmt.Sprint(site.counts[state]))
		}
		t.Add(row...)
	}
	b.WriteString(t.String())
	s.attentionText(&b, style, now)
	s.workText(&b, style)
	for _, agent := range s.certificates {
		fmt.Fprintf(
			&b,
			"\nThe certificate of agent %s (%s), which is away, ends in %s  → start it before, or enrol it anew\n",
			agent.GetAgentId(),
			view.Clean(agent.GetMachineId()+agent.GetSite()),
			view.Duration(certificateEnd(agent).Sub(now).Truncate(time.Minute)),
		)
	}
	return b.String()
}

func (s *fleetStatus) attentionText(b *strings.Builder, style view.Style, now time.Time) {
	shared := s.work.GetSharedCauses()
	if len(s.attention)+len(shared) == 0 {
		return
	}
	b.WriteString("\nNeeds a person:\n")
	for _, c := range shared {
		b.WriteString("  " + style.Bad(view.Clean(c.GetText())))
		if c.GetSince() != nil {
			b.WriteString(", for " + view.Age(c.GetSince(), now))
		}
		b.WriteString("; waits for " + view.Clean(c.GetWaitsFor()) + "  → ingot agent list\n")
	}
	for _, m := range s.attention {
		b.WriteString("  " + style.Bad(m.GetMachineId()) + "  " + m.GetStatus().GetAttentionReason() + ": " +
			view.Clean(m.GetStatus().GetAttentionMessage()) + "  → ingot why " + m.GetMachineId() + "\n")
	}
	if len(s.attention) == mostAttention {
		b.WriteString("  All of them: ingot why --filter state=ATTENTION\n")
	}
}

func (s *fleetStatus) workText(b *strings.Builder, style view.Style) {
	fmt.Fprintf(b, "\nOperations: %d under way, %d waiting, %d failed in the last 24 h\n",
		s.work.GetRunningOperations(), s.work.GetPendingOperations(), s.work.GetFailedOperations())
	for _, r := range s.rollouts {
		y := r.GetTally()
		state := r.GetState().String()
		next := "ingot rollout watch "
		switch r.GetState() {
		case pb.Rollout_PAUSED:
			state, next = style.Warn(state), "ingot rollout resume "
		case pb.Rollout_AWAITING_APPROVAL:
			state, next = style.Warn(state), "ingot rollout get "
		}
		fmt.Fprintf(b, "Rollout %s %s %s: %d of %d done, %d failed, %d left  → %s%s\n", r.GetRolloutId(),
			view.Clean(r.GetSpec().GetTitle()), state, y.GetDone(), y.GetMachines(), y.GetFailed(),
			y.GetLeft(), next,
			r.GetRolloutId())
	}
	if len(s.budgets) == 0 {
		b.WriteString("Budgets: none  → ingot budget set fleet --domain fleet --at-once N\n")
		return
	}
	fmt.Fprintf(b, "Budgets: %d, %d slots held", len(s.budgets), len(s.slots))
	if n := s.failedSlots(); n > 0 {
		fmt.Fprintf(b, ", %s by work that failed  → ingot budget slots", style.Warn(fmt.Sprint(n)))
	}
	b.WriteByte('\n')
}

// document is the same for programs.
func (s *fleetStatus) document(now time.Time) (*structpb.Struct, error) {
	sites, attention, rollouts, certificates := map[string]any{}, []any{}, []any{}, []any{}
	for _, site := range s.sites {
		counts := map[string]any{}
		for _, state := range effectiveStates {
			counts[state] = float64(site.counts[state])
		}
		name := site.site
		if name == "" {
			name = "all"
		}
		sites[name] = counts
	}
	for _, m := range s.attention {
		attention = append(attention, map[string]any{"machine_id": m.GetMachineId(),
			"reason": m.GetStatus().GetAttentionReason(), "message": m.GetStatus().GetAttentionMessage()})
	}
	shared := []any{}
	for _, c := range s.work.GetSharedCauses() {
		shared = append(shared, map[string]any{"reason": c.GetReason(), "text": c.GetText(), "site": c.GetSite(),
			"machines": float64(c.GetMachines()), "since": view.Time(c.GetSince()), "waits_for": c.GetWaitsFor()})
	}
	for _, r := range s.rollouts {
		rollouts = append(rollouts, map[string]any{"rollout_id": r.GetRolloutId(), "state": r.GetState().String(),
			"wait_reason": r.GetWaitReason(), "machines": float64(r.GetTally().GetMachines()),
			"done": float64(r.GetTally().GetDone()), "failed": float64(r.GetTally().GetFailed()),
			"left": float64(r.GetTally().GetLeft())})
	}
	for _, agent := range s.certificates {
		certificates = append(certificates, map[string]any{"agent_id": agent.GetAgentId(),
			"not_after": times.Stamp(certificateEnd(agent))})
	}
	return structpb.NewStruct(map[string]any{
		"as_of": times.Stamp(now), "frozen": s.server.GetFrozenSince() != nil, "sites": sites,
		"attention": attention, "shared_causes": shared, "rollouts": rollouts, "certificates": certificates,
		"agents_awaited": float64(s.work.GetAgentsAwaited()),
		"operations": map[string]any{"running": float64(s.work.GetRunningOperations()),
			"pending": float64(s.work.GetPendingOperations()), "failed_24h": float64(s.work.GetFailedOperations())},
		"budget_slots": map[string]any{"held": float64(len(s.slots)), "by_failed_work": float64(s.failedSlots())},
	})
}
