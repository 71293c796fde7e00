package rollout_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/rollout"
)

// TestTheWorstMachineDecides is the table of ends: what a rollout is called once no machine is left.
func TestTheWorstMachineDecides(t *testing.T) {
	for name, c := range map[string]struct {
		tally   rollout.Tally
		closed  bool
		want    rollout.State
		sum     rollout.Sum
		refused int
	}{
		"all done": {rollout.Tally{Machines: 3, Succeeded: 3}, false, rollout.Succeeded, rollout.Sum{Done: 3}, 0},
		"one of a hundred failed": {rollout.Tally{Machines: 100, Succeeded: 99, Failed: 1}, false,
			rollout.CompletedWithFailures, rollout.Sum{Done: 99, Failed: 1}, 0},
		"all failed, and no gate": {rollout.Tally{Machines: 2, Failed: 2}, false, rollout.CompletedWithFailures,
			rollout.Sum{Failed: 2}, 0},
		"one canceled": {rollout.Tally{Machines: 2, Succeeded: 1, Canceled: 1}, false, rollout.CompletedWithFailures,
			rollout.Sum{Done: 1}, 0},
		"one refused": {rollout.Tally{Machines: 2, Succeeded: 1, Skipped: 1}, false, rollout.Succeeded,
			rollout.Sum{Done: 1}, 1},
		"one skipped at its turn": {rollout.Tally{Machines: 3, Succeeded: 1, Skipped: 2}, false,
			rollout.CompletedWithFailures, rollout.Sum{Done: 1}, 1},
		"all skipped at their turn": {rollout.Tally{Machines: 2, Skipped: 2}, false, rollout.CompletedWithFailures,
			rollout.Sum{}, 0},
		"a closed gate": {rollout.Tally{Machines: 2, Succeeded: 1, Failed: 1}, true, rollout.Failed,
			rollout.Sum{Done: 1, Failed: 1}, 0},
		"a closed gate and one canceled": {rollout.Tally{Machines: 3, Succeeded: 1, Failed: 1, Canceled: 1}, true,
			rollout.Failed, rollout.Sum{Done: 1, Failed: 1}, 0},
	} {
		if got := rollout.EndState(c.tally, c.refused, c.closed); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if got := c.tally.Sum(); got != c.sum {
			t.Errorf("%s: %+v, want %+v", name, got, c.sum)
		}
	}
	under := rollout.Tally{Machines: 9, Pending: 4, Running: 2, Succeeded: 1, Failed: 1, Skipped: 1}
	if got, want := under.Sum(), (rollout.Sum{Done: 1, Failed: 1, Left: 6}); got != want {
		t.Errorf("under way: %+v, want %+v", got, want)
	}
}
