package explain_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/explain/rules"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationlog"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
)

func facts(t testing.TB, s *store.Store, machineID, operationID string, at time.Time) explain.Facts {
	t.Helper()
	f, err := s.Explain.ExplainFacts(t.Context(), machineID, operationID, at)
	if err != nil {
		t.Fatalf("gather facts: %v", err)
	}
	return f
}

// TestFactsOfAReimage follows a reimage of an empty machine until it waits for the installer. The facts have the site's
// reports, and nothing more.
func TestFactsOfAReimage(t *testing.T) {
	r := storetest.NewMetalRig(t)
	op := storetest.Start(t, r.Store, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		Params: map[string]string{"image_ref": "tiny"}, Inputs: storetest.Inputs("tiny")}).GetOperationId()
	r.Decide(op, operation.Evaluate{})
	if e := rules.Explain(facts(t, r.Store, "m-1", "", storetest.Now())); e.Rule != "site" ||
		e.WaitsOn != explain.OnAgent || e.OperationID != op {
		t.Errorf("before the site has applied: %+v", e)
	}
	r.Applied()
	r.Done(op, r.Site, "st-site", "boot-site", map[string]string{"power": "on"})

	f := facts(t, r.Store, "", op, storetest.Now())
	if !f.Named || f.Machine.GetMachineId() != "m-1" || len(f.Commands) != 1 || f.Commands[0].ExecutorRole != "site" ||
		f.Params["image_ref"] != "tiny" ||
		f.PlanID != "repave" || f.Boot.Mode != operation.BootInstaller || !f.InstallerReady ||
		f.Site.Applied != f.Site.Revision || f.Site.Segments[0].Name != "seg" ||
		f.Last.Kind == "" || f.Controllers != 1 || len(f.Agents) != 1 || !f.Agents[0].Live ||
		f.Agents[0].CertExpires.IsZero() {
		t.Errorf("facts %+v, site %+v", f, f.Site)
	}
	e := rules.Explain(f)
	if e.Rule != "installer" || e.WaitsOn != explain.OnDHCP || e.Cause.Reason != "INSTALLER_SILENT" {
		t.Errorf("without DHCP: %+v", e)
	}

	r.SiteSays(sitestore.SiteReport{LeasesSame: true,
		Segments: []*fleetv1.SegmentObservation{{Segment: "seg", State: "up", ForeignDhcpServer: "10.20.0.66"}}})
	if e := rules.Explain(facts(t, r.Store, "m-1", "", storetest.Now())); !storetest.ContainsAny(e.Cause.Text,
		"10.20.0.66") {
		t.Errorf("with another DHCP server: %q", e.Cause.Text)
	}
	r.SiteSays(sitestore.SiteReport{
		Segments: []*fleetv1.SegmentObservation{{Segment: "seg", State: "up"}},
		Leases: []*fleetv1.SiteLease{{Segment: "seg", MacAddress: storetest.MetalMAC, Address: "10.20.0.101",
			ExpiresAt: timestamppb.New(storetest.Now().Add(time.Hour))}},
	})
	if e := rules.Explain(facts(t, r.Store, "m-1", "", storetest.Now())); !storetest.ContainsAny(e.Cause.Text,
		"got the address 10.20.0.101") || e.WaitsOn != explain.OnAgent {
		t.Errorf("with an address: %q", e.Cause.Text)
	}
}

// TestFactsChooseTheOperation: the one that left the machine in need of an operator stays the explanation, whatever
// housekeeping came after it.
func TestFactsChooseTheOperation(t *testing.T) {
	s := storetest.New(t)
	a, op, c := storetest.Rebooting(t, s, "m-1")
	storetest.Decide(t, s, op, storetest.Ask(a, c, 1, 1))
	storetest.Decide(t, s, op, operation.Resulted{
		CommandID: c.ID, AgentID: a.ID, StateID: c.ExecutorStateID, Outcome: operation.OutcomeFailed,
		Reason: "EXECUTION_FAILED", Message: "no such unit",
	})
	exit := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "exit",
		Type: fleet.ExitMaintenance}).GetOperationId()
	storetest.Decide(t, s, exit, operation.Evaluate{})
	f := facts(t, s, "m-1", "", storetest.Now())
	if f.Op == nil || f.Op.ID != op {
		t.Fatalf("the operation is %+v", f.Op)
	}
	if e := rules.Explain(f); e.Rule != "failed" || e.Cause.Reason != "EXECUTION_FAILED" ||
		!storetest.ContainsAny(e.Summary, "no such unit") {
		t.Errorf("%+v", e)
	}
	if e := rules.Explain(facts(t, s, "m-1", exit, storetest.Now())); e.Rule != "succeeded" || e.OperationID != exit {
		t.Errorf("the operation by name: %+v", e)
	}
	_, err := s.Explain.ExplainFacts(t.Context(), "m-1", "op-no", storetest.Now())
	storetest.WantReason(t, err, "OPERATION_NOT_FOUND")
	_, err = s.Explain.ExplainFacts(t.Context(), "m-no", "", storetest.Now())
	storetest.WantReason(t, err, "MACHINE_NOT_FOUND")
	storetest.Register(t, s, "m-2")
	if _, err = s.Explain.ExplainFacts(t.Context(), "m-2", op, storetest.Now()); !failure.HasReason(
		err,
		"OPERATION_NOT_FOUND",
	) {
		t.Errorf("another machine's operation: %v", err)
	}
	if f := facts(t, s, "m-2", "", storetest.Now()); f.Op != nil || rules.Explain(f).Rule == "" {
		t.Errorf("a machine without operations: %+v", f.Op)
	}
}

// TestFactsOfAFence: the unresolved command and whose it is.
func TestFactsOfAFence(t *testing.T) {
	s := storetest.New(t)
	a, op, c := storetest.Rebooting(t, s, "m-1")
	storetest.Decide(t, s, op, storetest.Ask(a, c, 1, 1))
	later := storetest.Now().Add(time.Hour)
	if _, err := s.Operations.Decide(t.Context(), op, operation.Evaluate{}, later); err != nil {
		t.Fatal(err)
	}
	f := facts(t, s, "m-1", "", later)
	if f.Unresolved == nil || f.Unresolved.ID != c.ID || f.UnresolvedOp != op {
		t.Fatalf("the fence is %+v of %q", f.Unresolved, f.UnresolvedOp)
	}
	if e := rules.Explain(f); e.Rule != "fenced" || e.Cause.Reason != "OUTCOME_UNKNOWN" ||
		e.WaitsOn != explain.OnOperator {
		t.Errorf("%+v", e)
	}
}

// TestStepNormals: durations of steps that succeeded, by group and for the fleet, from the newest operations.
func TestStepNormals(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	storetest.Exec(t, s, `UPDATE machines SET spec = spec || '{"group": "web"}'`)
	storetest.Exec(t, s, `INSERT INTO inventories (machine_id, reported_at, agent_id, hash, document)
		VALUES ('m-1', now(), 'a', 'h', '{"system": {"product": "R640"}}')`)
	storetest.Exec(
		t,
		s,
		`INSERT INTO operations (operation_id, target_id, request_id, request_body, type, phase, plan_id, created_at, finished_at, updated_at)
		SELECT 'op-' || i, 'm-1', 'q' || i, '{}', 'REBOOT', 'SUCCEEDED', 'reboot', now(), now(), now() FROM generate_series(1, 20) i`,
	)
	storetest.Exec(
		t,
		s,
		`INSERT INTO operation_steps (operation_id, idx, name, kind, spec, timeout_ms, max_retries, state, started_at, finished_at)
		SELECT 'op-' || i, 0, 'reboot', 'reboot', '', 1, 0, CASE WHEN i = 20 THEN 'FAILED' ELSE 'SUCCEEDED' END, now(), now() + i * interval '1 second'
		FROM generate_series(1, 20) i`,
	)
	n, err := s.Explain.StepNormals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	web := n.For(kind.Reboot, "web", "", false)
	if web.P50 != 10*time.Second || web.P95 != 19*time.Second || web.Samples != 19 || web.Population != "group web" {
		t.Errorf("of the group: %+v", web)
	}
	if got := n.For(kind.Reboot, "db", "R640", false); got.Population != "model R640" || got.Samples != 19 {
		t.Errorf("of the model: %+v", got)
	}
	if got := n.For(kind.Reboot, "", "", false); got.Population != "fleet" {
		t.Errorf("of the fleet: %+v", got)
	}
	if got := n.For(kind.Reboot, "", "", true); got.Samples != 0 {
		t.Errorf("of simulations: %+v", got)
	}
	if f := facts(t, s, "m-1", "", storetest.Now()); f.Model != "R640" {
		t.Errorf("the model is %q", f.Model)
	}
}

// TestStuckIsNotedOnce: in the log of the operation, once for each step.
func TestStuckIsNotedOnce(t *testing.T) {
	s := storetest.New(t)
	_, op, _ := storetest.Rebooting(t, s, "m-1")
	if got, err := s.Explain.LongSteps(t.Context(), storetest.Now().Add(-time.Hour), 10); err != nil || len(got) != 0 {
		t.Errorf("young operations are long: %v (%v)", got, err)
	}
	got, err := s.Explain.LongSteps(t.Context(), storetest.Now().Add(time.Hour), 10)
	if err != nil || len(got) != 1 || got[0].OperationID != op || got[0].MachineID != "m-1" ||
		got[0].Kind != kind.Reboot || got[0].StartedAt.IsZero() {
		t.Fatalf("long steps: %v (%v)", got, err)
	}
	for i, want := range []bool{true, false} {
		if first, err := s.Explain.NoteStuck(t.Context(), op, "reboot", "stuck", storetest.Now()); err != nil ||
			first != want {
			t.Errorf("note %d: %v (%v)", i, first, err)
		}
	}
	logs, err := s.Logs.LogsOf(t.Context(), op, 0, 10)
	if err != nil || len(logs) != 1 || string(logs[0].GetData()) != "stuck\n" ||
		logs[0].GetStream() != operationlog.ControllerStream {
		t.Errorf("the log is %v (%v)", logs, err)
	}
}

// TestFactsOfAWorkflow: the one that has not ended, while an attempt is under way and after it was cancelled.
func TestFactsOfAWorkflow(t *testing.T) {
	r := storetest.NewLifeRig(t)
	w := r.Start("DECOMMISSION", "SOFT_RESET")
	f := facts(t, r.Store, "m-1", "", storetest.Now())
	if f.Workflow == nil || f.Workflow.ID != w.GetWorkflowId() || f.WorkflowSince.IsZero() || f.Op == nil ||
		f.Op.ID != w.GetOperationId() {
		t.Fatalf("workflow %+v of operation %+v", f.Workflow, f.Op)
	}
	if e := rules.Explain(f); e.OperationID != w.GetOperationId() ||
		!storetest.ContainsAny(strings.Join(e.Cause.Facts, "\n"), "attempt of decommission (soft_reset) "+w.GetWorkflowId()) {
		t.Errorf("%+v", e)
	}
}

// TestTheRolloutOfTheOperationIsNamed: of several rollouts that have a machine, the one that its operation is of; else
// the one that comes next.
func TestTheRolloutOfTheOperationIsNamed(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot}).
		GetOperationId()
	for i, r := range []struct{ id, state, of, op string }{
		{"ro-paused", "PAUSED", "PENDING", ""}, {"ro-old", "RUNNING", "PENDING", ""}, {"ro-new", "RUNNING", "RUNNING", op},
	} {
		for _, sql := range []string{
			`INSERT INTO rollouts (rollout_id, request_id, spec, type, plan_id, destructive, digest, state, waves, created_by,
				created_at, updated_at) VALUES ($1, $1, '', 'REBOOT', 'reboot', false, '', '` + r.state + `', 1, 'tester',
				now() + interval '` + strconv.Itoa(i) + ` seconds', now())`,
			`INSERT INTO rollout_machines (rollout_id, position, machine_id, wave, domain, state, operation_id)
				VALUES ($1, 1, 'm-1', 1, '', '` + r.of + `', nullif('` + r.op + `', ''))`,
		} {
			if err := storetest.ExecSQL(t, s, sql, r.id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r := facts(t, s, "m-1", op, storetest.Now()).Rollout; r == nil || r.ID != "ro-new" {
		t.Errorf("%+v", r)
	}
	if err := storetest.ExecSQL(
		t,
		s,
		"UPDATE rollout_machines SET state = 'SUCCEEDED' WHERE rollout_id = 'ro-new'",
	); err != nil {
		t.Fatal(err)
	}
	if r := facts(t, s, "m-1", op, storetest.Now()).Rollout; r == nil || r.ID != "ro-old" {
		t.Errorf("%+v", r)
	}
}

// TestTheAdviceKeepsTheBudget: what an operation that waits for a budget of interruptions is advised to do raises that
// budget, and makes no other of it.
func TestTheAdviceKeepsTheBudget(t *testing.T) {
	s := storetest.New(t)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "out", Domain: "fleet", AtOnce: 1, PerDay: 1,
		Harm: baremetalv1.Budget_INTERRUPTS})
	waiting := ""
	for _, id := range []string{"m-1", "m-2"} {
		storetest.Live(t, s, id).Arrived(t, s)
		for _, kind := range []fleet.OperationType{fleet.ExitMaintenance, fleet.Reboot} {
			op := storetest.Start(t, s, operationstore.StartRequest{MachineID: id, RequestID: string(kind), Type: kind})
			if kind == fleet.ExitMaintenance {
				storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{})
			}
			waiting = op.GetOperationId()
		}
	}
	storetest.AdmitDestructive(t, s, 1)
	storetest.Decide(t, s, waiting, operation.Evaluate{})
	e := rules.Explain(facts(t, s, "m-2", "", storetest.Now()))
	want := "ingot budget set out --harm interrupts --domain fleet --at-once 2 --per-day 2"
	if !slices.ContainsFunc(e.Actions, func(a explain.Action) bool { return a.Command == want }) {
		t.Errorf("%q is not among %+v", want, e.Actions)
	}
}
