package engine_test

import (
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/engine"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestFindStuck: a reboot that waits three minutes for an agent, where 20 others took a second, is stuck: counted each
// time, noted once, and not ended.
func TestFindStuck(t *testing.T) {
	s := storetest.New(t)
	e, err := engine.New(engine.Config{Store: s, Clock: clock.Real(), Logger: testkit.Logger(t), ControllerID: "ctl"})
	if err != nil {
		t.Fatal(err)
	}
	s.Operations.OnCreated(nil, nil)
	_, err = s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: "m-1",
		Spec: &baremetalv1.MachineSpec{Provider: "fake"}}, "tester", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	run := func(sql string) {
		t.Helper()
		if _, err := s.DB.Pool().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	run(`UPDATE machines SET phase = 'READY'`)
	// An agent that has been there, and is away: nobody else can do it.
	run(
		`INSERT INTO agents (agent_id, role, machine_id, site, capabilities, created_at) VALUES ('a-1', 'host', 'm-1', 'default', '{reboot}', now())`,
	)
	run(`UPDATE machines SET agent_id = 'a-1'`)
	op, _, err := s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
		Type: fleet.Reboot, Actor: "tester"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Operations.Decide(t.Context(), op.GetOperationId(), operation.Evaluate{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	wants := func(what string, want int) {
		t.Helper()
		if n, err := e.FindStuck(t.Context()); err != nil || n != want {
			t.Errorf("%s: %d are stuck (%v), want %d", what, n, err, want)
		}
	}
	wants("young", 0)
	run(`UPDATE operation_steps SET started_at = started_at - interval '3 minutes'`)
	wants("nothing is known of reboots", 0)
	run(
		`INSERT INTO operations (operation_id, target_id, request_id, request_body, type, phase, plan_id, created_at, finished_at, updated_at)
		SELECT 'op-' || i, 'm-1', 'q' || i, '{}', 'REBOOT', 'SUCCEEDED', 'reboot', now(), now(), now() FROM generate_series(1, 20) i`,
	)
	run(
		`INSERT INTO operation_steps (operation_id, idx, name, kind, spec, timeout_ms, max_retries, state, started_at, finished_at)
		SELECT 'op-' || i, 0, 'reboot', 'reboot', '', 1, 0, 'SUCCEEDED', now(), now() + interval '1 second' FROM generate_series(1, 20) i`,
	)
	wants("longer than others", 1)
	wants("again", 1)
	logs, err := s.Logs.LogsOf(t.Context(), op.GetOperationId(), 0, 10)
	if err != nil || len(logs) != 1 || !strings.HasPrefix(string(logs[0].GetData()),
		"stuck: REBOOT, step reboot, waits for ") {
		t.Errorf("the log is %v (%v)", logs, err)
	}
	if got, err := s.OperationQueries.GetOperation(t.Context(), op.GetOperationId()); err != nil ||
		got.GetPhase() != baremetalv1.Operation_RUNNING {
		t.Errorf("the operation is %v (%v)", got, err)
	}
}
