package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/trial"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestMain lets this binary be the recorder too: a cell starts itself again as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "record" {
		exit(trial.Record(os.Args[2], os.Args[3]))
	}
	code := m.Run()
	harness.RemoveBinaries()
	os.Exit(code)
}

// TestAFewRuns is the harness in small: a system is broken a few times and keeps its promises.
func TestAFewRuns(t *testing.T) {
	o, err := parse([]string{
		"--runs", "15", "--cells", "1", "--controllers", "1", "--agents", "3", "--seed", "1000", "--limit", "20s", "--rest",
		"3m", "--wide-every", "0", "--out", t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Bin = harness.Build(t).Dir()
	r, err := breakThings(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range r.Violations {
		t.Errorf("seed %d: %v", k.Seed, k.Found)
	}
	if len(r.Failures) > 0 || r.Runs == 0 {
		t.Errorf("%d runs; the harness failed: %v", r.Runs, r.Failures)
	}
	if r.Operations["SUCCEEDED"] == 0 || r.Effects["reboot"] == 0 || len(r.Faults) == 0 {
		t.Errorf("nothing happened: operations %v, effects %v, faults %v", r.Operations, r.Effects, r.Faults)
	}
	t.Logf("%d runs in %v; faults %v, operations %v", r.Runs, r.Elapsed.Round(time.Second), r.Faults, r.Operations)
}

func TestDrawingIsStable(t *testing.T) {
	t.Parallel()
	drawn := map[string]int{}
	for seed := range uint64(2000) {
		a, b := plan.Draw(seed, 3, plan.WeightsOf("", true)), plan.Draw(seed, 3, plan.WeightsOf("", true))
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("seed %d is %v and %v", seed, a, b)
		}
		if len(a.Strikes) == 0 {
			t.Fatalf("seed %d has no fault", seed)
		}
		for _, s := range a.Strikes {
			drawn[s.Kind]++
		}
	}
	for _, w := range plan.WeightsOf("", true) {
		if drawn[w.Kind] == 0 {
			t.Errorf("%s is never drawn; drawn are %v", w.Kind, slices.Sorted(maps.Keys(drawn)))
		}
	}
}

func TestDrawingOfWideWorlds(t *testing.T) {
	t.Parallel()
	drawn, short, rollouts := map[string]int{}, 0, 0
	for seed := range uint64(1000) {
		a, b := plan.DrawWide(seed, plan.WideWeightsOf("")), plan.DrawWide(seed, plan.WideWeightsOf(""))
		if fmt.Sprint(a.Strikes, a.Clients, a.Limit, a.Anew) != fmt.Sprint(b.Strikes, b.Clients, b.Limit, b.Anew) {
			t.Fatalf("seed %d is %v and %v", seed, a, b)
		}
		for _, s := range a.Strikes {
			drawn[s.Kind]++
		}
		if a.Limit > 0 {
			short++
		}
		if a.Rollout != nil {
			rollouts++
		}
	}
	for _, w := range plan.WideWeights {
		if drawn[w.Kind] == 0 {
			t.Errorf("%s is never drawn", w.Kind)
		}
	}
	if short == 0 || rollouts == 0 {
		t.Errorf("%d runs with short limits, %d with a rollout", short, rollouts)
	}
}
