package rollout_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	"github.com/ingot-metal/ingot/controller/store"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/task"
)

// rolling is a rollout over machines without agents: what it does is entering maintenance, which ends with a look.
type rolling struct {
	t  testing.TB
	s  *store.Store
	id string
	r  rolloutstore.RolloutRequest
	// looks counts them: each is an hour after the one before, so that the rollout is due whatever it rests for.
	looks *atomic.Int64
}

func racked(t testing.TB, s *store.Store, n, racks int) {
	t.Helper()
	for i := range n {
		_, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{
			MachineId: fmt.Sprintf("m-%d", i), Labels: map[string]string{"rack": fmt.Sprintf("r%d", i%racks)},
			Spec: &baremetalv1.MachineSpec{},
		}, "tester", storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
	}
}

func rolloutRequest(spec *baremetalv1.RolloutSpec) rolloutstore.RolloutRequest {
	if spec.GetTotalGate() == nil {
		spec.TotalGate = &baremetalv1.RolloutGate{Failures: 1}
	}
	return rolloutstore.RolloutRequest{
		RequestID: "r-1", Spec: spec, Machines: []machinestore.MachineFilter{{}},
		Work: operationstore.StartRequest{Type: fleet.EnterMaintenance}, Actor: "alice",
	}
}

func preview(t testing.TB, s *store.Store, r rolloutstore.RolloutRequest) *baremetalv1.RolloutPreview {
	t.Helper()
	p, err := s.Rollouts.PreviewRollout(t.Context(), r, storetest.Now())
	if err != nil {
		t.Fatalf("preview: %v", err)
	}
	return p
}

func roll(t testing.TB, s *store.Store, spec *baremetalv1.RolloutSpec) *rolling {
	t.Helper()
	return begin(t, s, rolloutRequest(spec))
}

func begin(t testing.TB, s *store.Store, r rolloutstore.RolloutRequest) *rolling {
	t.Helper()
	r.Digest = preview(t, s, r).GetDigest()
	ro, created, err := s.Rollouts.CreateRollout(t.Context(), r, storetest.Now())
	if err != nil || !created {
		t.Fatalf("create: %t, %v", created, err)
	}
	return &rolling{t, s, ro.GetRolloutId(), r, &atomic.Int64{}}
}

func (r *rolling) later() time.Time {
	return storetest.Now().Add(time.Duration(r.looks.Add(1)) * time.Hour)
}

func (r *rolling) advance() *rolloutstore.RolloutMove {
	r.t.Helper()
	m, err := r.s.Rollouts.AdvanceRollout(r.t.Context(), r.id, r.later())
	if err != nil {
		r.t.Fatalf("advance: %v", err)
	}
	return m
}

func (r *rolling) start(machineID string) *baremetalv1.Operation {
	r.t.Helper()
	op, err := r.s.Rollouts.StartRolloutMachine(r.t.Context(), r.id, machineID, storetest.Now())
	if err != nil {
		r.t.Fatalf("start %s: %v", machineID, err)
	}
	return op
}

// step looks once and starts what was claimed.
func (r *rolling) step() *rolloutstore.RolloutMove {
	r.t.Helper()
	m := r.advance()
	if m == nil {
		return nil
	}
	for _, id := range m.Starting {
		r.start(id)
	}
	return m
}

// until steps until the rollout has this state, ending operations on the way where end is true.
func (r *rolling) until(want rollout.State, end bool) *baremetalv1.Rollout {
	r.t.Helper()
	for range 100 {
		if ro := r.get(); ro.GetState().String() == string(want) {
			return ro
		}
		r.step()
		if end {
			r.endAll("SUCCEEDED")
		}
	}
	r.t.Fatalf("the rollout does not become %s: %v", want, r.get())
	return nil
}

func (r *rolling) get() *baremetalv1.Rollout {
	r.t.Helper()
	ro, err := r.s.Rollouts.GetRollout(r.t.Context(), r.id)
	if err != nil {
		r.t.Fatal(err)
	}
	return ro
}

// endAll ends the operations that are under way.
func (r *rolling) endAll(phase string) {
	r.t.Helper()
	fault := "NULL"
	if phase == "FAILED" {
		fault = `'{"code": "DISK_WRITE_ERROR", "message": "x"}'`
	}
	for _, sql := range []string{
		"UPDATE machines SET current_operation_id = NULL WHERE current_operation_id IN (SELECT operation_id FROM " +
			"rollout_machines)",
		"UPDATE operations SET phase = '" + phase + "', finished_at = now(), wake_at = NULL, error = " + fault +
			" WHERE phase IN ('PENDING', 'RUNNING') AND operation_id IN (SELECT operation_id FROM rollout_machines)",
	} {
		if err := storetest.ExecSQL(r.t, r.s, sql); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rolling) act(a rollout.Action) (*baremetalv1.Rollout, error) {
	ro, _, err := r.s.Rollouts.ActOnRollout(r.t.Context(), rolloutstore.RolloutAct{RolloutID: r.id, Action: a,
		Actor: "bob", Digest: r.r.Digest}, storetest.Now())
	return ro, err
}

func (r *rolling) must(a rollout.Action) *baremetalv1.Rollout {
	r.t.Helper()
	ro, err := r.act(a)
	if err != nil {
		r.t.Fatalf("%s: %v", a, err)
	}
	return ro
}

// rows are the machines in their order, as "m-0:1:PENDING".
func (r *rolling) rows() string {
	r.t.Helper()
	all, _, err := r.s.Rollouts.ListRolloutMachines(r.t.Context(),
		rolloutstore.RolloutMachineFilter{RolloutID: r.id, Wave: -1, Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	out := ""
	for _, m := range all {
		out += fmt.Sprintf(" %s:%d:%s", m.GetMachineId(), m.GetWave(), m.GetState())
		if m.GetReason() != "" {
			out += ":" + m.GetReason()
		}
	}
	return out
}

func (r *rolling) wants(rows string) {
	r.t.Helper()
	if got := r.rows(); got != " "+rows {
		r.t.Errorf("got %s\nwant %s", got, rows)
	}
}

func TestARolloutGoesWaveAfterWave(t *testing.T) {
	s := storetest.New(t)
	racked(t, s, 5, 2)
	r := roll(t, s, &baremetalv1.RolloutSpec{Canary: 1, MaxInFlight: 3, Domain: "label:rack", MaxPerDomain: 1,
		SoakSeconds: 60})
	r.wants("m-0:1:PENDING m-1:2:PENDING m-2:2:PENDING m-3:2:PENDING m-4:2:PENDING")
	r.step() // the first wave begins
	r.step()
	r.wants("m-0:1:RUNNING m-1:2:PENDING m-2:2:PENDING m-3:2:PENDING m-4:2:PENDING")
	r.endAll("SUCCEEDED")
	at := r.later()
	m, err := s.Rollouts.AdvanceRollout(t.Context(), r.id, at)
	if err != nil || m == nil || r.get().GetWaitReason() != "SOAKING" || r.get().GetSoakUntil() == nil {
		t.Fatalf("%+v, %v: %v", m, err, r.get())
	}
	if m, err = s.Rollouts.AdvanceRollout(t.Context(), r.id, at.Add(30*time.Second)); err != nil || m != nil {
		t.Fatalf("it was looked at while it rests: %+v, %v", m, err)
	}
	r.step()
	r.step()
	r.wants("m-0:1:SUCCEEDED m-1:2:RUNNING m-2:2:RUNNING m-3:2:PENDING m-4:2:PENDING")
	r.step()
	r.wants("m-0:1:SUCCEEDED m-1:2:RUNNING m-2:2:RUNNING m-3:2:PENDING m-4:2:PENDING")
	end := r.until(rollout.Succeeded, true)
	if end.GetTally().GetSucceeded() != 5 || end.GetFinishedAt() == nil || end.GetWave() != 2 {
		t.Errorf("%v", end)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM operations WHERE request_id = $1 AND params->>'rollout_id' = $1",
		r.id); n != 5 {
		t.Errorf("%d operations of the rollout", n)
	}
	if m := r.advance(); m != nil {
		t.Errorf("an ended rollout is due: %+v", m)
	}
}

// TestManyControllersRunOneRollout: what each of them does at the same time is done once, and within the limits.
func TestManyControllersRunOneRollout(t *testing.T) {
	s := storetest.New(t)
	racked(t, s, 12, 3)
	r := roll(t, s, &baremetalv1.RolloutSpec{Canary: 2, MaxInFlight: 4, Domain: "label:rack", MaxPerDomain: 2})
	g, _ := task.New(t.Context())
	for range 4 {
		g.Go("controller", func(ctx context.Context) error {
			for {
				m, err := s.Rollouts.AdvanceRollout(ctx, r.id, r.later())
				if err != nil {
					return err
				}
				if m != nil && m.State.Ended() || m == nil && r.get().GetFinishedAt() != nil {
					return nil
				}
				for _, id := range startingOf(m) {
					op, err := s.Rollouts.StartRolloutMachine(ctx, r.id, id, storetest.Now())
					if err != nil {
						return err
					}
					if n := storetest.Count(t, s, "SELECT count(*) FROM operations WHERE phase IN ('PENDING', 'RUNNING')"); n > 4 {
						return fmt.Errorf("%d operations at once", n)
					}
					if op != nil {
						if _, err := s.Operations.Decide(ctx, op.GetOperationId(), operation.Evaluate{}, storetest.Now()); err != nil {
							return err
						}
					}
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if y := r.get().GetTally(); y.GetSucceeded() != 12 {
		t.Errorf("%v", y)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM operations"); n != 12 {
		t.Errorf("%d operations on 12 machines", n)
	}
}

func startingOf(m *rolloutstore.RolloutMove) []string {
	if m == nil {
		return nil
	}
	return m.Starting
}

func TestUnfitMachinesAreSkippedAndNoFailures(t *testing.T) {
	s := storetest.New(t)
	racked(t, s, 4, 1)
	flag := func(id string) {
		if _, err := s.Operations.SetFlag(t.Context(), id, "Retired", true, "admin", "", storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	flag("m-0")
	r := roll(t, s, &baremetalv1.RolloutSpec{})
	r.wants("m-1:1:PENDING m-2:1:PENDING m-3:1:PENDING m-0:0:SKIPPED:MACHINE_BLOCKED")
	flag("m-2")
	r.until(rollout.CompletedWithFailures, true)
	r.wants("m-1:1:SUCCEEDED m-2:1:SKIPPED:MACHINE_BLOCKED m-3:1:SUCCEEDED m-0:0:SKIPPED:MACHINE_BLOCKED")
	if y := r.get().GetTally(); y.GetSkipped() != 2 || y.GetFailed() != 0 {
		t.Errorf("%v", y)
	}
	if got := r.get().GetMessage(); got != "2 of 3 machines are done, 0 failed, 0 canceled, 1 skipped at their turn" {
		t.Errorf("it reports %q", got)
	}
}

func TestNothingBeginsOnceAPauseHasAnswered(t *testing.T) {
	s := storetest.New(t)
	racked(t, s, 3, 1)
	r := roll(t, s, &baremetalv1.RolloutSpec{MaxInFlight: 2})
	r.step()
	claimed := r.advance().Starting
	if len(claimed) != 2 {
		t.Fatalf("claimed: %v", claimed)
	}
	r.start(claimed[0])
	r.must(rollout.Pause)
	if ro := r.must(rollout.Pause); ro.GetState() != baremetalv1.Rollout_PAUSED ||
		ro.GetWaitReason() != "PAUSED_BY_OPERATOR" {
		t.Fatalf("%v", ro)
	}
	if op := r.start(claimed[1]); op != nil {
		t.Fatalf("%v began after the pause", op)
	}
	r.wants("m-0:1:RUNNING m-1:1:PENDING m-2:1:PENDING")
	r.endAll("SUCCEEDED")
	r.step()
	r.wants("m-0:1:SUCCEEDED m-1:1:PENDING m-2:1:PENDING")
	if m := r.advance(); m != nil {
		t.Errorf("a paused rollout without work under way is due: %+v", m)
	}
	r.must(rollout.Resume)
	r.must(rollout.Resume)
	r.until(rollout.Succeeded, true)
	if n := storetest.Count(t, s,
		"SELECT count(*) FROM audit_log WHERE target_id = $1 AND verb IN ('PAUSE_ROLLOUT', 'RESUME_ROLLOUT')", r.id); n != 2 {
		t.Errorf("%d entries in the audit log: a repeat is none", n)
	}
}

func TestAFrozenFleetKeepsEveryTurn(t *testing.T) {
	s := storetest.New(t)
	racked(t, s, 2, 1)
	// Housekeeping touches no machine and goes on; what touches one waits.
	for i := range 2 {
		storetest.Maintenance(t, s, fmt.Sprintf("m-%d", i))
	}
	req := rolloutRequest(&baremetalv1.RolloutSpec{})
	req.Work.Type = fleet.Reboot
	req.Digest = preview(t, s, req).GetDigest()
	ro, _, err := s.Rollouts.CreateRollout(t.Context(), req, storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	r := &rolling{t, s, ro.GetRolloutId(), req, &atomic.Int64{}}
	r.step()
	claimed := r.advance().Starting
	if err := s.Incarnations.Freeze(t.Context(), "admin", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	for _, id := range claimed {
		if op := r.start(id); op != nil {
			t.Errorf("%v began in a frozen fleet", op)
		}
	}
	r.wants("m-0:1:PENDING m-1:1:PENDING")
	r.step()
	if got := r.get(); got.GetWaitReason() != "FLEET_FROZEN" {
		t.Errorf("%v", got)
	}
	_, err = s.Rollouts.PreviewRollout(t.Context(), req, storetest.Now())
	storetest.WantReason(t, err, "FLEET_FROZEN")
	if err := s.Incarnations.Thaw(t.Context(), "admin", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	r.until(rollout.Succeeded, true)
}
