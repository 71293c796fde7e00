package machine

import (
	"context"
	"fmt"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain"
)

func TestExplanationsStandAWhileForAMachineThatDoesNotChange(t *testing.T) {
	machine := func(version int64) *baremetalv1.Machine {
		return &baremetalv1.Machine{MachineId: "m", Version: version}
	}
	at := time.Unix(1000, 0)
	e := &explanations{}
	e.keep(&baremetalv1.ExplainedMachine{Machine: machine(3)}, at)
	for _, c := range []struct {
		version int64
		later   time.Duration
		known   bool
	}{
		{3, 0, true}, {3, explainedFor - 1, true}, {3, explainedFor, false}, {4, 0, false},
		{2, 0, false}, // the list was read before the facts: it is asked once more
	} {
		_, known := e.of([]*baremetalv1.Machine{machine(c.version)}, at.Add(c.later))["m"]
		if known != c.known {
			t.Errorf("version %d, %v later: known %t", c.version, c.later, known)
		}
	}
	for i := range 3 * mostKept {
		e.keep(&baremetalv1.ExplainedMachine{Machine: &baremetalv1.Machine{MachineId: fmt.Sprint(i)}}, at)
		if len(e.all) > mostKept {
			t.Fatalf("%d are kept", len(e.all))
		}
	}
}

// measurements counts how often durations are measured.
type measurements struct{ measured int }

func (c *measurements) StepNormals(context.Context) (explain.Baselines, error) {
	c.measured++
	return explain.Baselines{}, nil
}

// TestNormalsAreKeptForAMinute: and measured anew after it.
func TestNormalsAreKeptForAMinute(t *testing.T) {
	var n normals
	store, now := &measurements{}, time.Now()
	for i, want := range []int{1, 1, 2} {
		if _, err := n.get(t.Context(), store, now); err != nil || store.measured != want {
			t.Errorf("call %d: measured %d times, want %d (%v)", i, store.measured, want, err)
		}
		now = now.Add(31 * time.Second)
	}
}
