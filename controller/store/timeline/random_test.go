package timeline_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
)

// After a long random life the state of every machine, rebuilt from its history, is what the tables say, and the state
// at moments that were noted down is what was read then. INGOT_HISTORY_OPERATIONS sets the length, INGOT_HISTORY_SEED
// the life.
func TestHistoryEqualsTablesAfterARandomLife(t *testing.T) {
	s := storetest.New(t)
	operations, seed := storetest.Setting(t, "INGOT_HISTORY_OPERATIONS", 1000),
		storetest.Setting(t, "INGOT_HISTORY_SEED", 1)
	const workers, each = 4, 8
	lives := make([]*life, workers*each)
	for i := range lives {
		lives[i] = &life{s: s, name: fmt.Sprintf("m-%02d", i), rnd: rand.New(rand.NewPCG(uint64(seed), uint64(i)))}
	}
	if seed%2 == 1 {
		storetest.Listen(s) // as a controller does: operations begin where they are created
	}
	storetest.Lease(t, s)
	begin := time.Now()
	for _, err := range storetest.Together(t, workers, func(ctx context.Context, w int) error {
		for n := range operations / workers {
			if err := lives[w*each+n%each].work(ctx); err != nil {
				return fmt.Errorf("worker %d, operation %d: %w", w, n, err)
			}
		}
		return nil
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	lived := time.Since(begin)
	begin = time.Now()
	for _, l := range lives {
		for _, id := range l.machines {
			storetest.Intact(t, s, id)
		}
		l.remember(t)
	}
	storetest.Intact(t, s, "")
	storetest.NothingDangles(t, s)
	drawn(t, s)
	made := storetest.Count(t, s, "SELECT count(*) FROM operations")
	t.Logf("%d operations (%d SUCCEEDED, %d FAILED, %d CANCELED), %d entries; lived %v, verified in %v", made,
		storetest.Count(t, s, "SELECT count(*) FROM operations WHERE phase = 'SUCCEEDED'"),
		storetest.Count(t, s, "SELECT count(*) FROM operations WHERE phase = 'FAILED'"),
		storetest.Count(t, s, "SELECT count(*) FROM operations WHERE phase = 'CANCELED'"),
		storetest.Count(t, s, "SELECT count(*) FROM machine_timeline"), lived, time.Since(begin))
	if made < operations {
		t.Errorf("%d operations were made, not %d", made, operations)
	}
}

// drawn says how the workflows went; each kind, mode and end must have been there.
func drawn(t *testing.T, s *store.Store) {
	t.Helper()
	for _, m := range append(workflow.Modes(workflow.Decommission), workflow.NoMode) {
		all, done := "SELECT count(*) FROM workflows WHERE mode = $1",
			"SELECT count(*) FROM workflows WHERE mode = $1 AND state IN ('COMPLETED', 'RECONCILED')"
		if storetest.Count(t, s, all, string(m)) == 0 || storetest.Count(t, s, done, string(m)) == 0 {
			t.Errorf("workflows of mode %q: %d, of which %d got to their end", m, storetest.Count(t, s, all, string(m)),
				storetest.Count(t, s, done, string(m)))
		}
	}
	t.Logf("%d workflows (%d COMPLETED, %d RECONCILED, %d CANCELLED) with %d actions on %d machines",
		storetest.Count(t, s, "SELECT count(*) FROM workflows"),
		storetest.Count(t, s, "SELECT count(*) FROM workflows WHERE state = 'COMPLETED'"),
		storetest.Count(t, s, "SELECT count(*) FROM workflows WHERE state = 'RECONCILED'"),
		storetest.Count(t, s, "SELECT count(*) FROM workflows WHERE state = 'CANCELLED'"),
		storetest.Count(t, s, "SELECT count(*) FROM audit_log WHERE verb LIKE 'WORKFLOW_%'"),
		storetest.Count(t, s, "SELECT count(*) FROM machines"))
}

// life is one machine after the other and what happens to them. One goroutine lives it.
type life struct {
	s     *store.Store
	name  string
	agent storetest.Enrolled
	rnd   *rand.Rand
	// long says that many commands must go well: then they fail less often.
	long bool
	// generation counts the machines, which are listed in machines.
	generation int
	machines   []string
	boot       int
	grant      uint64
	asked      int
	// command is the newest one of the operation at hand.
	command *operation.Command
	notes   []note
}

// note is what was read of the machine at a time.
type note struct {
	at                time.Time
	machine           string
	phase, op, unsure string
	rma               bool
}

func (l *life) chance(percent int) bool { return l.rnd.IntN(100) < percent }

// mishap is the chance of something that ends a command badly.
func (l *life) mishap(percent int) bool {
	if l.long {
		percent = (percent + 3) / 4
	}
	return l.chance(percent)
}

// work starts one operation and sees it to its end, whatever that is.
func (l *life) work(ctx context.Context) error {
	if l.agent.ID == "" {
		if err := l.join(ctx); err != nil {
			return err
		}
	}
	if l.chance(10) {
		return l.leave(ctx)
	}
	l.command = nil
	op, err := l.start(ctx)
	if err != nil {
		return err
	}
	for range 500 {
		a, err := l.step(ctx, op.GetOperationId())
		if err != nil {
			return err
		}
		if operation.IsTerminal(a.Phase) {
			return l.afterwards(ctx)
		}
	}
	return fmt.Errorf("operation %s has no end", op.GetOperationId())
}

var types = []fleet.OperationType{fleet.Reboot, fleet.Reboot, fleet.Reboot, fleet.Netboot, fleet.EnterMaintenance,
	fleet.ExitMaintenance}

// start tries until the machine's phase allows what was drawn.
func (l *life) start(ctx context.Context) (*baremetalv1.Operation, error) {
	for {
		l.asked++
		op, _, err := l.s.Operations.Start(ctx, operationstore.StartRequest{
			MachineID: l.agent.Machine, RequestID: fmt.Sprint("r-", l.asked), Type: types[l.rnd.IntN(len(types))],
			Actor: "tester", Comment: "a word of Jane Roe",
		}, storetest.Now())
		if !refused(err) {
			return op, err
		}
	}
}

// step lets one thing happen; a controller may die while it writes it down, before or after the commit.
func (l *life) step(ctx context.Context, id string) (*operationstore.Applied, error) {
	e, at := l.event()
	if l.chance(10) {
		scope := failpoint.NewScope()
		points := []string{"store.before-apply", "store.before-commit", "store.after-commit"}
		scope.Set(points[l.rnd.IntN(len(points))], failpoint.Error())
		if _, err := l.s.Operations.Decide(failpoint.With(ctx, scope), id, e, at); err != nil &&
			!errors.Is(err, failpoint.ErrInjected) {
			return nil, err
		}
	}
	a, err := l.s.Operations.Decide(ctx, id, e, at)
	if err == nil && a.Command != nil {
		l.command = a.Command
	}
	return a, err
}

func (l *life) event() (operation.Event, time.Time) {
	if l.command == nil || l.chance(10) {
		return operation.Evaluate{}, storetest.Now()
	}
	if l.mishap(4) {
		return operation.CancelAsked{Actor: "tester"}, storetest.Now()
	}
	if l.mishap(8) {
		return operation.Evaluate{}, storetest.Now().Add(24 * time.Hour)
	}
	c := l.command
	switch l.rnd.IntN(4) {
	case 0:
		return operation.AckedByAgent{CommandID: c.ID, AgentID: l.agent.ID}, storetest.Now()
	case 1, 2:
		l.grant++
		return operation.GrantAsked{
			CommandID: c.ID, AgentID: l.agent.ID, StateID: "st-1", BootID: fmt.Sprint("boot-", l.boot), Seq: l.grant,
			Digest: c.Digest, Epoch: 1,
			Earlier: storetest.AsksBefore(l.grant),
		}, storetest.Now()
	}
	r := operation.Resulted{CommandID: c.ID, AgentID: l.agent.ID, StateID: "st-1",
		SessionBootID: fmt.Sprint("boot-", l.boot), Outcome: operation.OutcomeSucceeded, Evidence: proof(c.Kind)}
	switch {
	case l.mishap(15):
		r.Outcome, r.Reason, r.Retryable = operation.OutcomeFailed, "EXECUTION_FAILED", l.chance(50)
	case l.mishap(5):
		r.Outcome = operation.OutcomeUnknown
	default:
		l.boot++
		r.SessionBootID = fmt.Sprint("boot-", l.boot)
	}
	return r, storetest.Now()
}

// afterwards is what people do between operations: settle, flag, edit, scrub.
func (l *life) afterwards(ctx context.Context) error {
	id := l.agent.Machine
	m, err := l.s.Machines.KnownMachine(ctx, id)
	if err != nil {
		return err
	}
	if c := m.GetStatus().GetUnresolvedCommandId(); c != "" {
		if m, err = l.s.Operations.Settle(ctx, id, c, "did-not-happen", "tester", "seen by Jane Roe",
			storetest.Now()); err != nil {
			return err
		}
	}
	for _, act := range []func() (*baremetalv1.Machine, error){
		func() (*baremetalv1.Machine, error) {
			cleared, err := l.s.Operations.ClearIntervention(ctx, id, "tester", "", storetest.Now())
			if err != nil && failure.From(err).Reason == "NODE_GUARD_FAILED" {
				return m, nil // it was taken out of the middle of some work
			}
			return cleared, err
		},
		func() (*baremetalv1.Machine, error) {
			return l.s.Operations.SetFlag(ctx, id, "RMA", true, "tester", "", storetest.Now())
		},
		func() (*baremetalv1.Machine, error) {
			m.Labels = map[string]string{"n": fmt.Sprint(l.asked)}
			m.Version = 0
			return l.s.Machines.Update(ctx, m, "tester", storetest.Now())
		},
		func() (*baremetalv1.Machine, error) {
			_, err := l.s.History.ScrubAudit(ctx, id, "tester", storetest.Now())
			return m, err
		},
	} {
		if !l.chance(15) {
			continue
		}
		if m, err = act(); err != nil {
			return err
		}
	}
	if err := l.note(ctx); err != nil {
		return err
	}
	_, err = l.s.Operations.SetFlag(ctx, id, "RMA", false, "tester", "", storetest.Now())
	return err
}

func (l *life) note(ctx context.Context) error {
	m, err := l.s.Machines.KnownMachine(ctx, l.agent.Machine)
	if err == nil {
		l.notes = append(l.notes, note{
			at: time.Now(), machine: l.agent.Machine, phase: m.GetStatus().GetPhase().String(),
			op:     m.GetStatus().GetActiveOperationId(),
			unsure: m.GetStatus().GetUnresolvedCommandId(), rma: storetest.Condition(m, fleet.RMA) != nil,
		})
	}
	return err
}

// remember compares some of the notes with the states that the history gives for their times.
func (l *life) remember(t *testing.T) {
	t.Helper()
	for range min(5, len(l.notes)) {
		n := l.notes[l.rnd.IntN(len(l.notes))]
		st, err := l.s.Timelines.StateAt(t.Context(), n.machine, n.at)
		if err != nil || st == nil {
			t.Fatalf("state of %s at %v: %v, %v", n.machine, n.at, st, err)
		}
		got := note{n.at, n.machine, st.Machine["phase"], st.Machine["current_operation_id"],
			st.Machine["unresolved_command_id"], st.Conditions["RMA"].Status == "true"}
		if got != n {
			t.Errorf("%s: the history says %+v, it was %+v", n.machine, got, n)
		}
	}
}
