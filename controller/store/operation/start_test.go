package operation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

func TestThousandStartsWithOneRequest(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	const n = 1000
	ids := make([]string, n)
	created := make([]bool, n)
	errs := storetest.Together(t, n, func(ctx context.Context, i int) error {
		op, isNew, err := s.Operations.Start(ctx, operationstore.StartRequest{MachineID: "m-1", RequestID: "r-1",
			Type: fleet.Reboot, Actor: "x"}, storetest.Now())
		ids[i], created[i] = op.GetOperationId(), isNew
		return err
	})
	news := 0
	for i := range n {
		if errs[i] != nil || ids[i] != ids[0] || ids[i] == "" {
			t.Fatalf("call %d: %q, %v; call 0: %q", i, ids[i], errs[i], ids[0])
		}
		if created[i] {
			news++
		}
	}
	if rows := storetest.Count(t, s, "SELECT count(*) FROM operations WHERE request_id = 'r-1'"); rows != 1 || news != 1 {
		t.Errorf("%d operations, %d calls say that they made it", rows, news)
	}
	if audits := storetest.Count(t, s, "SELECT count(*) FROM audit_log WHERE request_id = 'r-1'"); audits != 1 {
		t.Errorf("%d audit rows", audits)
	}
}

func TestRepeatAfterTheEnd(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	again, created, err := s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1",
		RequestID: "enter", Type: fleet.EnterMaintenance}, storetest.Now())
	if err != nil || created || again.GetPhase().String() != "SUCCEEDED" {
		t.Errorf("%v, created %t, %v", again, created, err)
	}
}

func TestRequestIDReused(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	first := operationstore.StartRequest{
		MachineID: "m-1", RequestID: "r-1", Type: fleet.Netboot, Params: map[string]string{"mode": "PXE"},
		Inputs: kind.Inputs{NetbootMode: "PXE"},
	}
	op := storetest.Start(t, s, first)
	for field, change := range map[string]func(*operationstore.StartRequest){
		"type":    func(r *operationstore.StartRequest) { r.Type = fleet.Reboot },
		"plan_id": func(r *operationstore.StartRequest) { r.PlanID = "netboot-now" },
		"mode":    func(r *operationstore.StartRequest) { r.Params = map[string]string{"mode": "HTTP"} },
		"reboot":  func(r *operationstore.StartRequest) { r.Params = map[string]string{"mode": "PXE", "reboot": "true"} },
	} {
		r := first
		change(&r)
		_, _, err := s.Operations.Start(t.Context(), r, storetest.Now())
		f := storetest.WantReason(t, err, "REQUEST_ID_REUSED")
		if len(f.Fields) != 1 || f.Fields[0].Path != field || f.Metadata["operation_id"] != op.GetOperationId() {
			t.Errorf("%s differs; the error names %v of %v", field, f.Fields, f.Metadata)
		}
	}
	storetest.Live(t, s, "m-3")
	named := first
	named.MachineID, named.Params, named.Inputs = "m-3", map[string]string{"mode": "HTTP"},
		kind.Inputs{NetbootMode: "HTTP"}
	storetest.Start(t, s, named)
	dropped := named
	dropped.Params, dropped.Inputs = nil, kind.Inputs{}
	if _, _, err := s.Operations.Start(t.Context(), dropped, storetest.Now()); err == nil {
		t.Error("a request without the first one's parameter counts as its repeat")
	}
	// The same request id on another machine is another request.
	storetest.Live(t, s, "m-2")
	other := first
	other.MachineID = "m-2"
	if second := storetest.Start(t, s, other); second.GetOperationId() == op.GetOperationId() {
		t.Error("two machines share an operation")
	}
}

func TestOneActiveOperationPerMachine(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	const n = 50
	errs := storetest.Together(t, n, func(ctx context.Context, i int) error {
		_, _, err := s.Operations.Start(ctx, operationstore.StartRequest{MachineID: "m-1", RequestID: strings.Repeat("r",
			i+1), Type: fleet.Reboot}, storetest.Now())
		return err
	})
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		if f := storetest.WantReason(t, err, "MACHINE_BUSY"); f.Metadata["active_operation_id"] != storetest.Machine(t, s,
			"m-1").GetStatus().GetActiveOperationId() {
			t.Errorf("busy with %v", f.Metadata)
		}
	}
	if won != 1 {
		t.Errorf("%d operations were started", won)
	}
}

// The rules that hold in the database, whatever the code does.
func TestSchemaHoldsTheRules(t *testing.T) {
	s := storetest.New(t)
	_, id, c := storetest.Rebooting(t, s, "m-1")
	refused := func(why, query string, args ...any) {
		t.Helper()
		err := storetest.ExecSQL(t, s, query, args...)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code[:2] != "23" {
			t.Errorf("%s: %v", why, err)
		}
	}
	copyOp := `INSERT INTO operations (operation_id, target_id, request_id, request_body, type, phase, plan_id, wake_at, created_at, updated_at)
		SELECT 'op-2', target_id, 'r-2', '{}', type, 'PENDING', plan_id, now(), now(), now() FROM operations WHERE operation_id = $1`
	refused("a second active operation", copyOp, id)
	refused("an active operation that nothing wakes", "UPDATE operations SET wake_at = NULL WHERE operation_id = $1", id)
	refused("an active operation that has finished", "UPDATE operations SET finished_at = now() WHERE operation_id = $1",
		id)
	refused("a second unsettled command",
		`INSERT INTO commands SELECT 'c-2', operation_id, target_id, step_idx, step_name, attempt + 1, kind,
		spec, digest, executor_id, executor_state_id, state, outcome, reason, message, evidence, boot_id_before, grant_seq, deadline, created_at
		FROM commands WHERE command_id = $1`, c.ID)
	refused("a current operation that does not exist",
		"UPDATE machines SET current_operation_id = 'op-x' WHERE machine_id = 'm-1'")
	refused("a deleted machine row", "DELETE FROM machines WHERE machine_id = 'm-1'")
	refused("a deleted operation row", "DELETE FROM operations WHERE operation_id = $1", id)
	storetest.Decide(t, s, id, operation.CancelAsked{Actor: "x"})
	for _, set := range []string{"phase = 'RUNNING', wake_at = now(), finished_at = NULL", "evidence = '{}'",
		"wait_reason = 'x'", "version = version + 1"} {
		refused("a changed finished operation: "+set, "UPDATE operations SET "+set+" WHERE operation_id = $1", id)
	}
}

func TestStartNamesWhatIsMissing(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	storetest.Register(t, s, "m-new")
	for reason, r := range map[string]operationstore.StartRequest{
		"MACHINE_NOT_FOUND":      {MachineID: "m-x", Type: fleet.Reboot},
		"PLAN_NOT_FOUND":         {MachineID: "m-1", Type: fleet.RunPlan, PlanID: "no-such"},
		"WRONG_PHASE":            {MachineID: "m-new", Type: fleet.Reboot},
		"MACHINE_HAS_NO_IMAGE":   {MachineID: "m-1", Type: fleet.Reimage},
		"CLUSTER_NOT_CONFIGURED": {MachineID: "m-1", Type: fleet.RunPlan, PlanID: "drain"},
	} {
		r.RequestID = "r-" + reason
		_, _, err := s.Operations.Start(t.Context(), r, storetest.Now())
		storetest.WantReason(t, err, reason)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM operations WHERE request_id LIKE 'r-%'"); n != 0 {
		t.Errorf("%d operations of refused requests", n)
	}
}

// Operations that are created together have one job each, whatever their type, and a repeated request has no other.
func TestEachNewOperationHasItsJob(t *testing.T) {
	s := storetest.New(t)
	const machines = 24
	agents := make([]storetest.Enrolled, machines)
	for i := range agents {
		agents[i] = storetest.Live(t, s, fmt.Sprintf("m-%d", i))
	}
	h := storetest.Listen(s)
	ids := make([]string, machines)
	types := []fleet.OperationType{fleet.Reboot, fleet.Netboot, fleet.EnterMaintenance}
	for i, err := range storetest.Together(t, machines, func(ctx context.Context, i int) error {
		a := agents[i]
		r := operationstore.StartRequest{MachineID: a.Machine, RequestID: "r", Type: types[i%len(types)]}
		op, created, err := s.Operations.Start(ctx, r, storetest.Now())
		if err != nil || !created {
			return fmt.Errorf("created %t, %w", created, err)
		}
		ids[i] = op.GetOperationId()
		if again, created, err := s.Operations.Start(ctx, r, storetest.Now()); err != nil || created ||
			again.GetOperationId() != ids[i] {
			return fmt.Errorf("a repeat: %v, created %t, %w", again, created, err)
		}
		first, err := s.Operations.Decide(ctx, ids[i], operation.Due{}, storetest.Now())
		if err != nil || r.Type == fleet.EnterMaintenance {
			return err
		}
		c := first.Command
		for _, e := range []operation.Event{
			operation.Due{}, // which it is no more
			storetest.Ask(a, c, 1, 1),
			operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeSucceeded, SessionBootID: "boot-2",
				Evidence: map[string]string{"boot_next": "network"}},
		} {
			if _, err := s.Operations.Decide(ctx, ids[i], e, storetest.Now()); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("%s on machine %d: %v", types[i%len(types)], i, err)
		}
	}
	jobs := map[operationstore.JobKey]int{}
	for _, k := range h.Jobs {
		jobs[k]++
	}
	for i, a := range agents {
		storetest.Whole(t, s, a.Machine, ids[i], operation.Succeeded)
		storetest.Intact(t, s, a.Machine)
		if n := jobs[operationstore.JobKey{OperationID: ids[i], MachineID: a.Machine, RequestID: "r"}]; n != 1 {
			t.Errorf("operation %d has %d jobs", i, n)
		}
	}
	if len(jobs) != machines {
		t.Errorf("%d jobs of %d operations", len(jobs), machines)
	}
}

// An operation whose job cannot be inserted does not exist.
func TestNoOperationWithoutItsJob(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	full := errors.New("no more room")
	s.Operations.OnCreated(func(context.Context, pgx.Tx, []*operationstore.NewJob) error { return full }, nil)
	before := storetest.Everything(t, s, storetest.Decided...)
	r := operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot}
	if _, _, err := s.Operations.Start(t.Context(), r, storetest.Now()); !errors.Is(err, full) ||
		storetest.Everything(t, s, storetest.Decided...) != before {
		t.Errorf("%v, or something is left", err)
	}
}

// A job that comes before an operation's time decides nothing; one that comes by a clock that is a little slow does.
func TestWhatIsNotDueWaits(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	id := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
		Type: fleet.Reboot}).GetOperationId()
	before := storetest.Everything(t, s, storetest.Decided...)
	if _, err := s.Operations.Decide(t.Context(), id, operation.Due{}, storetest.Now().Add(-time.Minute)); err != nil ||
		storetest.Everything(t, s, storetest.Decided...) != before {
		t.Errorf("a minute early: %v, or something has changed", err)
	}
	a, err := s.Operations.Decide(t.Context(), id, operation.Due{}, storetest.Now().Add(-100*time.Millisecond))
	if err != nil || a.Phase != operation.Running {
		t.Errorf("by a slow clock: %+v, %v", a, err)
	}
}
