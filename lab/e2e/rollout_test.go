package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// rackful is a fleet of simulated machines in racks, of which some always fail to reboot.
type rackful struct {
	t        *testing.T
	c        *harness.Client
	rollouts baremetalv1.RolloutServiceClient
	machines []*harness.Machine
	rack     map[string]string
}

// newRackful makes n machines in turns over so many racks. Those for which fails returns true fail.
func newRackful(t *testing.T, c *harness.Client, n, racks int, fails func(i int) bool) *rackful {
	f := &rackful{t: t, c: c, rollouts: baremetalv1.NewRolloutServiceClient(c.Conn()), rack: map[string]string{}}
	plans := baremetalv1.NewPlanServiceClient(c.Conn())
	harness.Must(t, plans.CreatePlan, &baremetalv1.CreatePlanRequest{Plan: &baremetalv1.Plan{
		PlanId: "reboot-once",
		Steps: []*baremetalv1.Step{{Name: "reboot", MaxRetries: -1, TimeoutSeconds: rig.PatientTime,
			Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{}}}},
	}})
	for i := range n {
		o := harness.MachineOptions{ID: fmt.Sprintf("m-%03d", i), Delay: 60 * time.Millisecond}
		if fails(i) {
			o.Script = "reboot:fail-before"
		}
		m := c.NewMachine(t, o)
		f.rack[m.ID] = fmt.Sprintf("r%d", i%racks)
		c.Register(&baremetalv1.Machine{
			MachineId: m.ID, Labels: map[string]string{"rack": f.rack[m.ID], "rollout": "yes"}, Spec: &baremetalv1.MachineSpec{},
		})
		f.machines = append(f.machines, m)
	}
	for _, m := range f.machines {
		m.WaitConnected()
		rig.Maintenance(t, c, m.ID)
	}
	return f
}

func (f *rackful) preview(spec *baremetalv1.RolloutSpec) *baremetalv1.RolloutPreview {
	f.t.Helper()
	return harness.Must(f.t, f.rollouts.PreviewRollout, &baremetalv1.PreviewRolloutRequest{Spec: spec})
}

// create begins a rollout as a client does whose controller may die: with one request id, again and again.
func (f *rackful) create(spec *baremetalv1.RolloutSpec, digest string) *baremetalv1.Rollout {
	f.t.Helper()
	return harness.Must(f.t, f.rollouts.CreateRollout,
		&baremetalv1.CreateRolloutRequest{RequestId: "the-rollout", Spec: spec, Digest: digest})
}

func (f *rackful) get(id string) *baremetalv1.Rollout {
	f.t.Helper()
	return harness.Must(f.t, f.rollouts.GetRollout, &baremetalv1.GetRolloutRequest{RolloutId: id})
}

// wait follows the rollout to a state.
func (f *rackful) wait(id string, ok func(*baremetalv1.Rollout) bool) *baremetalv1.Rollout {
	f.t.Helper()
	var r *baremetalv1.Rollout
	testkit.Eventually(f.t, rig.Soon, func() bool { r = f.get(id); return ok(r) }, "the rollout does not get there: %v",
		lazyRollout(func() *baremetalv1.Rollout { return r }))
	return r
}

type lazyRollout func() *baremetalv1.Rollout

func (l lazyRollout) String() string { return l().String() }

// span is one operation on a machine, by the operations' own record.
type span struct {
	machine, phase string
	from, to       time.Time
}

// operations reads what was started on machines, without looking at rollouts.
func (f *rackful) operations() []span {
	f.t.Helper()
	var out []span
	token := ""
	for {
		r := harness.Must(f.t, f.c.Operations().ListOperations,
			&baremetalv1.ListOperationsRequest{Filter: "type=RUN_PLAN", PageSize: 1000, PageToken: token})
		for _, op := range r.GetOperations() {
			s := span{machine: op.GetMachineId(), phase: op.GetPhase().String(), from: op.GetCreatedAt().AsTime(),
				to: time.Now().Add(time.Hour)}
			if harness.Ended(op) {
				s.to = op.GetFinishedAt().AsTime()
			}
			out = append(out, s)
		}
		if token = r.GetNextPageToken(); token == "" {
			return out
		}
	}
}

// most is how many operations were under way at once, among those with the same key.
func most(all []span, key func(span) string) int {
	peak := 0
	for _, s := range all {
		n := 0
		for _, o := range all {
			if key(o) == key(s) && !o.from.After(s.from) && o.to.After(s.from) {
				n++
			}
		}
		peak = max(peak, n)
	}
	return peak
}

// effects counts the reboots that the machines' own worlds have seen.
func (f *rackful) effects() (touched map[string]int) {
	touched = map[string]int{}
	for _, m := range f.machines {
		for _, e := range m.Journal() {
			if e.Kind == sim.KindReboot && e.Stage == sim.StageEffect {
				touched[m.ID]++
			}
		}
	}
	return touched
}

// TestARolloutStopsWhenTooManyFail runs a reboot over machines of which every tenth fails, and kills the controller in
// the middle of a wave with SIGKILL. What was touched is counted from the operations and from the machines themselves.
func TestARolloutStopsWhenTooManyFail(t *testing.T) {
	t.Parallel()
	const machines, racks, perRack, inFlight, gate = 30, 5, 1, 4, 2
	c := harness.NewControllerProcess(t)
	c.Start("")
	f := newRackful(t, c.Client, machines, racks, func(i int) bool { return i%10 == 3 })
	spec := &baremetalv1.RolloutSpec{
		Filter: "labels.rollout=yes", PlanId: "reboot-once", Canary: 2, Percents: []int32{50, 100}, MaxInFlight: inFlight,
		Domain: "label:rack", MaxPerDomain: perRack, TotalGate: &baremetalv1.RolloutGate{Failures: gate},
	}
	p := f.preview(spec)
	if len(p.GetWaves()) != 3 || len(p.GetMachines()) != machines {
		t.Fatalf("preview: %d waves, %d machines", len(p.GetWaves()), len(p.GetMachines()))
	}
	id := f.create(spec, p.GetDigest()).GetRolloutId()
	f.wait(id, func(r *baremetalv1.Rollout) bool { return r.GetWave() == 2 && r.GetTally().GetRunning() > 0 })
	c.Process.Kill()
	c.Start("")
	r := f.wait(id, func(r *baremetalv1.Rollout) bool {
		return r.GetState() == baremetalv1.Rollout_PAUSED && r.GetTally().GetRunning() == 0
	})
	if r.GetWaitReason() != "PAUSED_BY_GATE" {
		t.Fatalf("%v", r)
	}
	ops := f.operations()
	failed := 0
	perMachine := map[string]int{}
	var closed time.Time
	ends := []time.Time{}
	for _, s := range ops {
		perMachine[s.machine]++
		if s.phase == "FAILED" {
			failed++
			ends = append(ends, s.to)
		}
	}
	slices.SortFunc(ends, time.Time.Compare)
	if len(ends) >= gate {
		closed = ends[gate-1]
	}
	late := 0
	for _, s := range ops {
		if s.from.After(closed.Add(time.Second)) {
			late++
		}
	}
	all := most(ops, func(span) string { return "" })
	rack := most(ops, func(s span) string { return f.rack[s.machine] })
	t.Logf("of %d machines %d were touched, %d failed under a gate of %d; at once %d of %d, in one rack %d of %d; begun "+
		"a second after the gate: %d",
		machines, len(ops), failed, gate, all, inFlight, rack, perRack, late)
	if all > inFlight || rack > perRack {
		t.Errorf("at once %d of %d, in one rack %d of %d", all, inFlight, rack, perRack)
	}
	if failed < gate || failed > gate+inFlight || late > 0 || len(ops) == machines {
		t.Errorf("%d failed, %d of %d touched, %d after the gate had closed", failed, len(ops), machines, late)
	}
	for m, n := range perMachine {
		if n != 1 {
			t.Errorf("%s has %d operations", m, n)
		}
	}
	for m, n := range f.effects() {
		if n != 1 || perMachine[m] != 1 {
			t.Errorf("%s was rebooted %d times by %d operations", m, n, perMachine[m])
		}
	}
	// The word of a person, and it goes on to its end: one more fails, which is less than the gate.
	harness.Must(t, f.rollouts.ResumeRollout, &baremetalv1.ResumeRolloutRequest{RolloutId: id})
	end := f.wait(id, func(r *baremetalv1.Rollout) bool { return r.GetFinishedAt() != nil })
	if y := end.GetTally(); end.GetState() != baremetalv1.Rollout_COMPLETED_WITH_FAILURES || y.GetFailed() != 3 ||
		y.GetSucceeded() != machines-3 {
		t.Errorf("%v", end)
	}
}

// TestARolloutThatBeginsWithTheBrokenTouchesFew: where those that fail come first, no more are touched than the gate
// and those that were under way when it closed.
func TestARolloutThatBeginsWithTheBrokenTouchesFew(t *testing.T) {
	t.Parallel()
	const machines, inFlight, gate = 20, 3, 2
	c := harness.New(t, harness.Options{})
	f := newRackful(t, c.Client, machines, 4, func(i int) bool { return i < 5 })
	spec := &baremetalv1.RolloutSpec{
		Filter: "labels.rollout=yes", PlanId: "reboot-once", MaxInFlight: inFlight,
		TotalGate: &baremetalv1.RolloutGate{Failures: gate}, OnGate: "cancel",
	}
	id := f.create(spec, f.preview(spec).GetDigest()).GetRolloutId()
	r := f.wait(id, func(r *baremetalv1.Rollout) bool { return r.GetFinishedAt() != nil })
	touched := len(f.operations())
	t.Logf("%d of %d machines were touched; the gate is %d, %d may be under way", touched, machines, gate, inFlight)
	if r.GetState() != baremetalv1.Rollout_FAILED || touched > gate+inFlight {
		t.Errorf("%d were touched: %v", touched, r)
	}
	// An operation that was made and canceled before it began is touched for the one count, and canceled for the other.
	if y := r.GetTally(); y.GetCanceled() < int32(machines-touched) || y.GetCanceled()+y.GetFailed()+
		y.GetSucceeded() != machines {
		t.Errorf("%v", y)
	}
}

// TestARolloutSurvivesDeaths kills the controller with SIGKILL at each failpoint of a rollout; every machine is worked
// on once.
func TestARolloutSurvivesDeaths(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"rollout.created@1", "rollout.claimed@2", "rollout.before-start-commit@2",
		"rollout.started@3"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			c := harness.NewControllerProcess(t)
			c.Start("")
			f := newRackful(t, c.Client, 4, 2, func(int) bool { return false })
			spec := &baremetalv1.RolloutSpec{Filter: "labels.rollout=yes", PlanId: "reboot-once", Canary: 1, MaxInFlight: 2,
				Domain: "label:rack"}
			digest := f.preview(spec).GetDigest()
			c.Process.Terminate()
			name, nth, _ := strings.Cut(point, "@")
			c.Start(name + "=kill@" + nth)
			done := make(chan *baremetalv1.Rollout, 1)
			go func() { done <- f.create(spec, digest) }()
			select {
			case <-c.Process.Gone():
			case <-time.After(rig.Soon):
				t.Fatal("the controller did not die")
			}
			if !c.Process.Killed() {
				t.Fatal("the controller ended in peace")
			}
			c.Start("")
			r := f.wait((<-done).GetRolloutId(), func(r *baremetalv1.Rollout) bool { return r.GetFinishedAt() != nil })
			if r.GetState() != baremetalv1.Rollout_SUCCEEDED || r.GetTally().GetSucceeded() != 4 {
				t.Errorf("%v", r)
			}
			if ops, effects := f.operations(), f.effects(); len(ops) != 4 || len(effects) != 4 {
				t.Errorf("%d operations, reboots %v", len(ops), effects)
			}
			for m, n := range f.effects() {
				if n != 1 {
					t.Errorf("%s was rebooted %d times", m, n)
				}
			}
		})
	}
}
