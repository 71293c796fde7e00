package main

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/kill/judge"
)

// TestASeedFixesTheFaults holds that a seed draws the same faults again, that all kinds are drawn, and that each ends
// while clients still work.
func TestASeedFixesTheFaults(t *testing.T) {
	t.Parallel()
	const duration = 5 * time.Minute
	kinds := map[string]int{}
	for seed := range uint64(20) {
		first := draw(seed, duration, 20, "")
		if !reflect.DeepEqual(first, draw(seed, duration, 20, "")) {
			t.Fatalf("seed %d draws other faults the second time", seed)
		}
		for _, x := range first {
			kinds[x.kind]++
			if x.at+x.length > duration {
				t.Errorf("seed %d: %s ends at %v", seed, x.kind, x.at+x.length)
			}
		}
	}
	for _, w := range weights {
		if kinds[w.kind] == 0 {
			t.Errorf("%s is never drawn", w.kind)
		}
	}
	for _, x := range draw(1, duration, 20, "kill-site,cut-agent") {
		if x.kind != "kill-site" && x.kind != "cut-agent" {
			t.Errorf("%s is drawn, and was not asked for", x.kind)
		}
	}
	if _, err := parse([]string{"--only", "kill-agent,kill-everyone"}); err == nil {
		t.Error("a fault that does not exist is accepted")
	}
}

// TestARecordIsReadAsItWasWritten holds that a run can be judged again.
func TestARecordIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	machine := &baremetalv1.Machine{MachineId: "m-1"}
	in := judge.Record{
		Agents: map[string]string{"a-1": "agent-01"},
		World:  []judge.World{{Machine: "m-1", BootID: "boot", On: true, Image: "sha256:00"}},
		Explanations: []judge.Explanation{
			{At: time.Second, Machine: machine, Operation: "op-1",
				Answer: &baremetalv1.ExplainMachineResponse{MachineId: "m-1", Rule: "idle"}},
			{At: 2 * time.Second, Live: true, Shared: &baremetalv1.SharedCause{Site: "dallas"}},
		},
	}
	in.Verdicts = []*baremetalv1.TimelineVerdict{{MachineId: "m-1", Ok: true}}
	in.Header.Seed, in.Machines = 7, []check.Machine{{Machine: machine}}
	dir := t.TempDir()
	if err := keepHistory(dir, in); err != nil {
		t.Fatal(err)
	}
	out, err := readRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	if out.Header.Seed != 7 || len(out.Machines) != 1 || !reflect.DeepEqual(in.Agents, out.Agents) ||
		!reflect.DeepEqual(in.World, out.World) || len(out.Explanations) != 2 || len(out.Verdicts) != 1 {
		t.Fatalf("read as %+v", out)
	}
	for i, e := range in.Explanations {
		got := out.Explanations[i]
		if got.At != e.At || got.Live != e.Live || got.Operation != e.Operation ||
			protojson.Format(got.Answer) != protojson.Format(e.Answer) ||
			protojson.Format(got.Shared) != protojson.Format(e.Shared) {
			t.Errorf("explanation %d is read as %+v", i, got)
		}
	}
}
