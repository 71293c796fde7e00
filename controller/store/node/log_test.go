package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
)

// watchStates lets the database itself count every change of a node's state, beside the log.
func watchStates(t testing.TB, s *store.Store) {
	t.Helper()
	for _, q := range []string{
		`CREATE TABLE seen_moves (id bigserial, machine_id text, from_state text, to_state text)`,
		`CREATE FUNCTION see_move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.node_state <> OLD.node_state THEN
				INSERT INTO seen_moves (machine_id, from_state, to_state) VALUES (NEW.machine_id, OLD.node_state, NEW.node_state);
			END IF;
			RETURN NULL;
		END $$`,
		`CREATE TRIGGER see_moves AFTER UPDATE ON machines FOR EACH ROW EXECUTE FUNCTION see_move()`,
	} {
		if err := storetest.ExecSQL(t, s, q); err != nil {
			t.Fatal(err)
		}
	}
}

// oneLineEach fails unless the log has exactly one line for every change, in order, and nothing else. It returns their
// number.
func oneLineEach(t testing.TB, s *store.Store) int {
	t.Helper()
	read := func(table string) map[string][]string {
		rows, err := s.DB.Pool().Query(t.Context(), "SELECT machine_id, from_state || '>' || to_state FROM "+table+
			" ORDER BY id")
		if err != nil {
			t.Fatal(err)
		}
		out, id, line := map[string][]string{}, "", ""
		if _, err := pgx.ForEachRow(rows, []any{&id, &line},
			func() error { out[id] = append(out[id], line); return nil }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	seen, logged := read("seen_moves"), read("node_state_log")
	n := 0
	for id, moves := range seen {
		n += len(moves)
		if strings.Join(moves, " ") != strings.Join(logged[id], " ") {
			t.Errorf("%s moved\n%v\nand the log has\n%v", id, moves, logged[id])
		}
	}
	for id := range logged {
		if seen[id] == nil {
			t.Errorf("the log has lines of %s, which never moved", id)
		}
	}
	return n
}

// Whoever changes the state, by whatever statement, leaves one line; lines stay as they are.
func TestTheLogIsWrittenWithTheState(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	watchStates(t, s)
	if err := storetest.Transition(s, "m-1", "a", node.Pending, false); err != nil {
		t.Fatal(err)
	}
	if err := storetest.ExecSQL(t, s, "UPDATE machines SET node_state = 'active' WHERE machine_id = 'm-1'"); err != nil {
		t.Fatal(err)
	}
	if err := storetest.ExecSQL(t, s, "INSERT INTO node_state_log (machine_id, from_state, to_state, triggered_by, "+
		"created_at) VALUES ('m-1', 'active', 'retired', 'admin', now())"); err != nil {
		t.Fatal(err)
	}
	if n := oneLineEach(t, s); n != 2 {
		t.Errorf("%d changes", n)
	}
	wantHistory(t, s, "m-1", "discovered>pending admin", "pending>active system")
	for _, q := range []string{"UPDATE node_state_log SET to_state = 'x'", "DELETE FROM node_state_log"} {
		if storetest.ExecSQL(t, s, q) == nil {
			t.Errorf("%s is let through", q)
		}
	}
}

// Each move is a line of the controller's own log as well, once it has committed; one that is taken back is none.
func TestMovesAreLogged(t *testing.T) {
	var out lockedBuffer
	s := storetest.With(t, store.Config{Logger: slog.New(slog.NewJSONHandler(&out, nil))})
	storetest.Register(t, s, "m-1")
	if err := storetest.Transition(s, "m-1", "a", node.Pending, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Nodes.TransitionNode(t.Context(), nodestore.TransitionRequest{MachineID: "m-1", RequestID: "b",
		To: node.Retired, DryRun: true}, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Count(out.String(), `"msg":"node moved"`)
	for _, want := range []string{`"machine_id":"m-1"`, `"from":"discovered"`, `"to":"pending"`, `"triggered_by":"admin"`,
		`"user_id":"tester"`, `"operation_id":"op`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in %s", want, out.String())
		}
	}
	if lines != 1 {
		t.Errorf("%d lines", lines)
	}
}

// lockedBuffer takes what several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// nodeLife is one node and whatever may happen to it. One goroutine lives it.
type nodeLife struct {
	s     *store.Store
	agent storetest.Enrolled
	mac   string
	rnd   *rand.Rand
	grant uint64
	asked int
	boot  int
	clock time.Duration
}

func (l *nodeLife) at() time.Time { return storetest.Now().Add(l.clock) }

func (l *nodeLife) chance(percent int) bool { return l.rnd.IntN(100) < percent }

// act does one thing at random; what is refused is fine, anything else is not.
func (l *nodeLife) act(ctx context.Context) error {
	if l.chance(8) {
		scope := failpoint.NewScope()
		points := []string{"store.before-apply", "store.before-commit", "store.after-commit"}
		scope.Set(points[l.rnd.IntN(len(points))], failpoint.Error())
		ctx = failpoint.With(ctx, scope)
	}
	acts := []func(context.Context) error{l.transition, l.transition, l.start, l.report, l.work, l.work, l.work, l.work,
		l.work, l.beat, l.admin}
	err := acts[l.rnd.IntN(len(acts))](ctx)
	var refused *failure.Error
	if errors.As(err, &refused) || errors.Is(err, failpoint.ErrInjected) {
		return nil
	}
	return err
}

func (l *nodeLife) request() string {
	l.asked++
	return fmt.Sprint("r-", l.asked)
}

func (l *nodeLife) transition(ctx context.Context) error {
	states := node.States()
	to := states[l.rnd.IntN(len(states))]
	if to == node.Deleted || to == node.Retired && !l.chance(30) {
		return nil
	}
	image := ""
	if to == node.Reprovision {
		image = "img"
	}
	_, _, err := l.s.Nodes.TransitionNode(ctx, nodestore.TransitionRequest{
		MachineID: l.agent.Machine, RequestID: l.request(), To: to, ImageRef: image, Force: l.chance(70), Actor: "ann",
		DryRun: l.chance(5),
	}, l.at())
	return err
}

func (l *nodeLife) start(ctx context.Context) error {
	kinds := []operationstore.StartRequest{
		{Type: fleet.Reimage, PlanID: "write"}, {Type: fleet.Reimage, PlanID: "write-again"}, {Type: fleet.Reboot},
		{Type: fleet.RunPlan, PlanID: "erase"},
		{Type: fleet.RMAType}, {Type: fleet.RMAType, PlanID: "rma-return"},
	}
	r := kinds[l.rnd.IntN(len(kinds))]
	r.MachineID, r.RequestID, r.Actor = l.agent.Machine, l.request(), "ann"
	_, _, err := l.s.Operations.Start(ctx, r, l.at())
	return err
}

func (l *nodeLife) report(ctx context.Context) error {
	all := node.Statuses()
	_, err := l.s.Nodes.ReportNode(ctx, &baremetalv1.ReportNodeRequest{MacAddress: l.mac,
		InstallationStatus: all[l.rnd.IntN(len(all))], InstallationError: "no"}, "installer", l.at())
	return err
}

// work brings an event to what is under way.
func (l *nodeLife) work(ctx context.Context) error {
	m, err := l.s.Machines.KnownMachine(ctx, l.agent.Machine)
	if err != nil {
		return err
	}
	op := m.GetStatus().GetActiveOperationId()
	if op == "" {
		return nil
	}
	e, err := l.event(ctx, op)
	if err != nil || e == nil {
		return err
	}
	_, err = l.s.Operations.Decide(ctx, op, e, l.at())
	return err
}

func (l *nodeLife) event(ctx context.Context, op string) (operation.Event, error) {
	var id, st string
	var digest []byte
	err := l.s.DB.Pool().
		QueryRow(ctx, "SELECT command_id, executor_state_id, digest FROM commands WHERE operation_id = $1 "+
			"ORDER BY step_idx DESC, attempt DESC LIMIT 1", op).
		Scan(&id, &st, &digest)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	switch n := l.rnd.IntN(100); {
	case n < 4:
		return operation.CancelAsked{Actor: "ann"}, nil
	case n < 7:
		l.clock += 8 * time.Hour
		return operation.Evaluate{}, nil
	case id == "" || n < 25:
		l.clock += time.Duration(l.rnd.IntN(40)) * time.Second
		return operation.Evaluate{}, nil
	case n < 60:
		l.grant++
		return operation.GrantAsked{CommandID: id, AgentID: l.agent.ID, StateID: st, BootID: fmt.Sprint("boot-", l.boot),
			Seq: l.grant, Digest: digest, Epoch: 1, Earlier: storetest.AsksBefore(l.grant)}, nil
	}
	r := operation.Resulted{
		CommandID: id, AgentID: l.agent.ID, StateID: st, Outcome: operation.OutcomeSucceeded,
		Evidence: map[string]string{"image_digest": "sha256:ab", "erase_method": "discard", "boot_next": "network"},
	}
	switch n := l.rnd.IntN(100); {
	case n < 40:
		r.Outcome, r.Reason, r.Retryable = operation.OutcomeFailed, "EXECUTION_FAILED", l.chance(60)
	case n < 45:
		r.Outcome = operation.OutcomeUnknown
	case n < 50:
		r.Outcome = operation.OutcomeCanceled
	default:
		l.boot++
		r.SessionBootID = fmt.Sprint("boot-", l.boot)
	}
	return r, nil
}

func (l *nodeLife) beat(ctx context.Context) error {
	silent := time.Hour
	if l.chance(50) {
		silent = -time.Hour
	}
	return l.s.NodeStates.UpdateReachable(ctx, storetest.Now().Add(silent), l.at())
}

// admin mends what would keep the node from living on.
func (l *nodeLife) admin(ctx context.Context) error {
	id := l.agent.Machine
	m, err := l.s.Machines.KnownMachine(ctx, id)
	if err != nil {
		return err
	}
	if c := m.GetStatus().GetUnresolvedCommandId(); c != "" {
		if _, err := l.s.Operations.Settle(ctx, id, c, "did-not-happen", "ann", "", l.at()); err != nil {
			return err
		}
	}
	switch l.rnd.IntN(5) {
	case 0:
		_, err = l.s.Operations.SetFlag(ctx, id, "RMA", l.chance(30), "ann", "", l.at())
	case 1:
		_, err = l.s.Operations.SetFlag(ctx, id, "Retired", false, "ann", "", l.at())
	case 2:
		_, err = l.s.Operations.Quarantine(ctx, id, "CLONE_DETECTED", "two of it", l.at())
	default:
		_, err = l.s.Operations.ClearIntervention(ctx, id, "ann", "", l.at())
	}
	if err != nil {
		return err
	}
	plan := []string{"write", "write-again"}[l.rnd.IntN(2)]
	_, err = l.s.Nodes.UpdateNode(ctx, id, nodestore.NodeUpdate{PlanID: &plan}, "ann", l.at())
	return err
}

// After a long random life, with failures, cancels, reports, flags, retirements and controllers that die at any moment
// of a decision, no node stands for work that nobody does, and the log has every change once. INGOT_NODE_STEPS sets the
// length.
func TestNodesAfterARandomLife(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	watchStates(t, s)
	steps, seed := storetest.Setting(t, "INGOT_NODE_STEPS", 4000), storetest.Setting(t, "INGOT_NODE_SEED", 1)
	const workers = 8
	lives := make([]*nodeLife, workers)
	for i := range lives {
		id, mac := fmt.Sprintf("m-%d", i), fmt.Sprintf("52:54:00:00:01:%02d", i)
		lives[i] = &nodeLife{s: s, agent: able(t, s, id), mac: mac, rnd: rand.New(rand.NewPCG(uint64(seed), uint64(i))),
			boot: 1}
		if _, err := s.Machines.Update(t.Context(),
			&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{Provider: "fake", MacAddresses: []string{mac}}},
			"ann", storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		for _, err := range storetest.Together(t, workers, func(ctx context.Context, w int) error {
			for range steps / workers / 20 {
				if err := lives[w].act(ctx); err != nil {
					return fmt.Errorf("node %d: %w", w, err)
				}
			}
			return nil
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		owned(t, s)
	}
	moves := oneLineEach(t, s)
	visited := storetest.Count(t, s, "SELECT count(DISTINCT to_state) FROM node_state_log")
	t.Logf("%d steps, %d operations, %d moves into %d states", steps,
		storetest.Count(t, s, "SELECT count(*) FROM operations"), moves, visited)
	if moves < steps/40 || visited < 9 {
		t.Errorf("hardly anything has happened: %d moves into %d states", moves, visited)
	}
}
