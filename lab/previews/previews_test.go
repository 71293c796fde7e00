package previews_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

var (
	pairs = flag.Int("previews", 60, "pairs of a preview and its call to try")
	seed  = flag.Uint64("previews-seed", 1, "of the first fleet; 0 draws one")
)

// TestAPreviewAndTheWorkAgree: on random fleets, what a preview accepts is accepted, and no step of it is refused while
// every agent does what it is asked. What it refuses is refused for the same reason, and changes nothing.
func TestAPreviewAndTheWorkAgree(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(storetest.Now().UnixNano())
	}
	counts := map[string]int{}
	t.Cleanup(func() { t.Logf("first seed %d, answers %v", first, counts) })
	for i := range (*pairs + machinesPerFleet - 1) / machinesPerFleet {
		t.Run(fmt.Sprint("seed=", first+uint64(i)), func(t *testing.T) {
			w := newWorld(t, first+uint64(i))
			if w.frozen = w.chance(7); w.frozen {
				if err := w.Store.Incarnations.Freeze(t.Context(), "admin", "stop", storetest.Now()); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range w.machines {
				counts[w.try(m)]++
			}
		})
	}
	if counts["yes"] == 0 || counts["no"] == 0 {
		t.Errorf("a kind of answer did not occur: %v", counts)
	}
}

// try compares a preview with its call, and returns the preview's answer.
func (w *world) try(m *machine) string {
	w.T.Helper()
	if storetest.State(w.T, w.Store, m.id) == "deleted" {
		return "deleted before"
	}
	v := w.verb()
	before := w.record(m.id)
	previewed := v.preview(m.id)
	if after := w.record(m.id); after != before {
		w.T.Errorf("%s on %s: the preview changed\n%s to\n%s", v.name, m.id, before, after)
	}
	active := storetest.Machine(w.T, w.Store, m.id).GetStatus().GetActiveOperationId()
	operation, refused := v.call(m.id)
	about := fmt.Sprintf("%s on %s", v.name, w.about(m))
	if previewed != refused {
		w.T.Errorf("%s: the preview answers %q, the call %q", about, previewed, refused)
	}
	if refused != "" {
		if after := w.record(m.id); after != before && operation == "" {
			w.T.Errorf("%s: refused with %s, it changed\n%s to\n%s", about, refused, before, after)
		}
		return "no"
	}
	if m.provider != "maas" && storetest.Count(w.T, w.Store,
		"SELECT count(*) FROM images WHERE kind <> 'os' AND image_ref = $1", v.writes) > 0 {
		w.T.Errorf("%s: a file of an installer is taken for an image", about)
	}
	if op, err := w.Store.OperationQueries.GetOperation(w.T.Context(), operation); err != nil ||
		op.GetFinishedAt() != nil {
		return "yes" // the call has begun none: it is about one that has ended before, or needs no work
	}
	if w.frozen && operation == active {
		return "yes" // it was under way when the freeze began, which refuses its next grant
	}
	if op := w.drive(operation, 0); op.GetPhase() == pb.Operation_FAILED && previewed == "" {
		w.T.Errorf("%s: the preview accepts, and step %s is refused: %s: %s", about, op.GetCurrentStage(),
			op.GetError().GetCode(), op.GetError().GetMessage())
	}
	return "yes"
}

// record is everything that a refused call must leave as it is.
func (w *world) record(machine string) string {
	w.T.Helper()
	m := storetest.Machine(w.T, w.Store, machine)
	return fmt.Sprintf("%s %s %s; operations %d, workflows %d, moves %d, audited %d", m.GetStatus().GetPhase(),
		m.GetStatus().GetNodeState(), m.GetStatus().GetActiveOperationId(),
		storetest.Count(w.T, w.Store, "SELECT count(*) FROM operations"),
		storetest.Count(w.T, w.Store, "SELECT count(*) FROM workflows"),
		storetest.Count(w.T, w.Store, "SELECT count(*) FROM node_state_log"),
		storetest.Count(w.T, w.Store, "SELECT count(*) FROM audit_log"))
}

// about describes a machine for a report.
func (w *world) about(m *machine) string {
	r := storetest.Machine(w.T, w.Store, m.id)
	var caps []string
	for _, a := range w.agents {
		if a.machine == m {
			caps = append([]string{fmt.Sprint("simulated=", a.simulated), fmt.Sprint("session=", a.epoch)}, a.caps...)
		}
	}
	slices.Sort(caps)
	return fmt.Sprintf("%s (%s, %s, site %s, bmc %q %q, agent [%s])", m.id, r.GetSpec().GetProvider(),
		r.GetStatus().GetNodeState(), r.GetSpec().GetSite(), r.GetSpec().GetBmcEndpoint(),
		r.GetSpec().GetBmcCredentialsRef(), strings.Join(caps, " "))
}
