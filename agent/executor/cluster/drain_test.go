package cluster_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// workload is the pods of a Node, under a budget that lets one of them end at a time. One that ends is seen ending
// once.
type workload struct {
	names  []string
	ending string
	seen   bool
}

func (w *workload) says(r *http.Request) (int, string) {
	switch {
	case r.URL.Path == "/api/v1/pods":
		if w.seen {
			w.names = slices.DeleteFunc(w.names, func(name string) bool { return name == w.ending })
			w.ending, w.seen = "", false
		}
		w.seen = w.ending != ""
		var items []string
		for _, name := range w.names {
			items = append(items, pod(name, name == w.ending, `,"ownerReferences":[{"kind":"ReplicaSet","controller":true}]`))
		}
		return http.StatusOK, list(items...)
	case strings.HasSuffix(r.URL.Path, "/eviction"):
		if w.ending != "" {
			return http.StatusTooManyRequests, `{"message":"one at a time"}`
		}
		w.ending = strings.Split(r.URL.Path, "/")[6]
		return http.StatusCreated, "{}"
	}
	return 0, ""
}

func pod(name string, ending bool, more string) string {
	if ending {
		more += `,"deletionTimestamp":"2026-11-01T12:00:00Z"`
	}
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"d","uid":%q%s}}`, name, "u-"+name, more)
}

func list(pods ...string) string { return `{"items":[` + strings.Join(pods, ",") + `]}` }

// TestADrainUnderABudget sees every pod go, also one that it has not evicted, and reports progress.
func TestADrainUnderABudget(t *testing.T) {
	t.Parallel()
	r := newQuickRig(t)
	w := &workload{names: []string{"p6", "p5", "p4", "p3", "p2", "p1"}, ending: "p6"} // one was deleted before
	r.says = w.says
	got, err := r.do(t.Context(), drain(), time.Minute)
	r.wants(got, err, succeeded, none)
	if got.Evidence[evidence.NodeDrained] != "6" || got.Evidence[evidence.NodeRemoved] != "" || !r.unschedulable ||
		r.called("DELETE") {
		t.Errorf("evidence %v, cordoned %t, calls %v", got.Evidence, r.unschedulable, r.calls)
	}
	held := func(names ...string) string {
		return "d/" + strings.Join(names, ": one at a time; d/") + ": one at a time"
	}
	want := []string{
		"0 0 of 6 pods are gone; " + held("p1", "p2", "p3", "p4", "p5") + "; and 1 more",
		"16 1 of 6 pods are gone; " + held("p1", "p2", "p3", "p4") + "; d/p5 is ending",
		"16 1 of 6 pods are gone; " + held("p1", "p2", "p3", "p4") + "; d/p5 is ending",
		"33 2 of 6 pods are gone; " + held("p1", "p2", "p3") + "; d/p4 is ending",
		"33 2 of 6 pods are gone; " + held("p1", "p2", "p3") + "; d/p4 is ending",
		"50 3 of 6 pods are gone; " + held("p1", "p2") + "; d/p3 is ending",
		"50 3 of 6 pods are gone; " + held("p1", "p2") + "; d/p3 is ending",
		"66 4 of 6 pods are gone; " + held("p1") + "; d/p2 is ending",
		"66 4 of 6 pods are gone; " + held("p1") + "; d/p2 is ending",
		"83 5 of 6 pods are gone; d/p1 is ending",
		"83 5 of 6 pods are gone; d/p1 is ending",
	}
	if !slices.Equal(r.progress, want) {
		t.Errorf("progress\n%s\nwant\n%s", strings.Join(r.progress, "\n"), strings.Join(want, "\n"))
	}
	lines := strings.Join(r.lines, "\n")
	if strings.Count(lines, "Node m-1 is cordoned; 6 pods are to go") != 1 || strings.Count(lines, "are to go") != 1 {
		t.Errorf("log\n%s", lines)
	}
}

// TestPodsThatBlockADrain are named, and nothing is evicted for as long as there is one. One that is ending blocks
// nothing.
func TestPodsThatBlockADrain(t *testing.T) {
	t.Parallel()
	alone := func(names ...string) (out []string) {
		for _, name := range names {
			out = append(out, pod(name, false, ""))
		}
		return out
	}
	const why = ": no controller would start it again elsewhere"
	for _, c := range []struct {
		pods    []string
		message string
	}{
		{alone("b"), "pods may not be evicted: d/b" + why},
		{alone("g", "f", "e", "d", "c", "b", "a"),
			"d/a" + why + "; d/b" + why + "; d/c" + why + "; d/d" + why + "; d/e" + why + "; and 2 more"},
	} {
		r := newQuickRig(t)
		r.says = answers(http.MethodGet, "/pods", 200, list(c.pods...))
		got, err := r.do(t.Context(), removal(), time.Minute)
		r.wants(got, err, failed, blocked)
		if !strings.Contains(got.Message, c.message) || !got.Retryable || r.unschedulable {
			t.Errorf("%q, retryable %t, cordoned %t", got.Message, got.Retryable, r.unschedulable)
		}
		if r.called("POST") || r.called("DELETE") {
			t.Errorf("calls %v", r.calls)
		}
	}
	r := newQuickRig(t)
	looks := 0
	r.says = func(q *http.Request) (int, string) {
		if !strings.HasSuffix(q.URL.Path, "/pods") {
			return 0, ""
		}
		if looks++; looks < 3 {
			return 200, list(pod("b", true, ""))
		}
		return 200, list()
	}
	got, err := r.do(t.Context(), drain(), time.Minute)
	r.wants(got, err, succeeded, none)
	if got.Evidence[evidence.NodeDrained] != "1" {
		t.Errorf("evidence %v", got.Evidence)
	}
}

// called reports whether the cluster was asked with this method.
func (r *rig) called(method string) bool {
	return slices.ContainsFunc(r.calls, func(c string) bool { return strings.HasPrefix(c, method+" ") })
}

// TestTheTimeOfADrainIsUp: the pods that are left are named, with what holds them.
func TestTheTimeOfADrainIsUp(t *testing.T) {
	t.Parallel()
	r := newQuickRig(t)
	r.pod, r.held = true, true
	got, err := r.do(t.Context(), drain(), time.Minute)
	r.wants(got, err, failed, blocked)
	if want := "the time for the drain is up: d/p: budget b holds it"; !strings.Contains(got.Message, want) ||
		r.unschedulable {
		t.Errorf("%q, want %q; cordoned %t", got.Message, want, r.unschedulable)
	}
}

// TestACordonOfADrain is written down before it is made, is seen, and is taken back when the drain fails.
func TestACordonOfADrain(t *testing.T) {
	t.Parallel()
	patched := func(status int, on bool, body string) func(*http.Request) (int, string) {
		return func(r *http.Request) (int, string) {
			var patch struct{ Spec struct{ Unschedulable bool } }
			if r.Method != http.MethodPatch || decode(r, &patch) != nil || patch.Spec.Unschedulable != on {
				return 0, ""
			}
			return status, body
		}
	}
	for name, c := range map[string]struct {
		forgets error
		says    func(*http.Request) (int, string)
		reason  baremetalv1.Reason
		message string
		evicted bool
	}{
		"not written down": {forgets: errors.New("no space left"), reason: baremetalv1.Reason_EXECUTION_FAILED,
			message: "cordon was taken back"},
		"not let": {says: patched(403, true, "{}"), reason: denied, message: "cordon was taken back"},
		"not seen": {says: patched(200, true, node("b-1", "n", "True", false)), reason: away,
			message: "the Node still takes pods; its cordon was taken back"},
		"not taken back": {says: patched(403, false, "{}"), reason: blocked, message: "stays cordoned", evicted: true},
		"Node is gone":   {says: patched(404, false, "{}"), reason: blocked, message: "cordon was taken back", evicted: true},
		"taken back":     {reason: blocked, message: "cordon was taken back", evicted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newQuickRig(t)
			r.pod, r.held, r.says, r.forgets = true, true, c.says, c.forgets
			got, err := r.do(t.Context(), drain(), time.Minute)
			r.wants(got, err, failed, c.reason)
			if !strings.HasSuffix(strings.Split(got.Message, ", because")[0], c.message) || r.called("POST") != c.evicted {
				t.Errorf("%q, calls %v", got.Message, r.calls)
			}
		})
	}
}

// TestARemovalIsSeen: a Node counts as removed when it is gone, or when another one has its name.
func TestARemovalIsSeen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after   string // what the Node shows after it was deleted; empty for nothing
		status  int
		outcome fleetv1.CommandResult_Outcome
		reason  baremetalv1.Reason
	}{
		"gone":                                {"", 404, succeeded, none},
		"the machine has joined again":        {node("b-1", "n-2", "True", false), 200, succeeded, none},
		"another machine has joined as it":    {node("b-9", "n-2", "True", false), 200, succeeded, none},
		"the same Node shows another machine": {node("b-9", "n", "True", false), 200, failed, mismatch},
		"nobody may see it":                   {"{}", 403, failed, denied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newQuickRig(t)
			q := newQuick()
			r.clock, r.pod = q, true
			deleted, looks := false, 0
			r.says = func(r *http.Request) (int, string) {
				switch {
				case r.Method == http.MethodDelete:
					deleted = true
					return http.StatusOK, "{}"
				case !deleted || r.Method != http.MethodGet:
					return 0, ""
				}
				if looks++; looks < 3 { // something holds it for a while
					return http.StatusOK, node("b-1", "n", "True", true)
				}
				return c.status, c.after
			}
			got, err := r.do(t.Context(), removal(), time.Minute)
			r.wants(got, err, c.outcome, c.reason)
			if c.outcome == succeeded && (got.Evidence[evidence.NodeRemoved] != q.now.Format(time.RFC3339) ||
				got.Evidence[evidence.NodeDrained] != "1") {
				t.Errorf("evidence %v", got.Evidence)
			}
			if !deleted || looks != 3 {
				t.Errorf("deleted %t, then looked %d times", deleted, looks)
			}
		})
	}
	r := newQuickRig(t)
	r.gone = true
	got, err := r.do(t.Context(), removal(), time.Minute)
	r.wants(got, err, succeeded, none)
	if got.Evidence[evidence.NodeRemoved] != "there was no Node" || got.Evidence[evidence.NodeDrained] != "0" {
		t.Errorf("evidence %v", got.Evidence)
	}
	r = newQuickRig(t)
	r.pod, r.says = true, answers(http.MethodPost, "/eviction", 403, "{}")
	got, err = r.do(t.Context(), removal(), time.Minute)
	r.wants(got, err, failed, denied)
	if r.called("DELETE") {
		t.Errorf("a Node with pods was deleted: %v", r.calls)
	}
}
