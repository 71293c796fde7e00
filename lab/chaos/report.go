package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// tally counts over runs.
type tally struct {
	Runs       int            `json:"runs"`
	Busy       time.Duration  `json:"busy_ns"`
	Settling   time.Duration  `json:"settling_ns"`
	Slowest    time.Duration  `json:"slowest_ns"`
	Faults     map[string]int `json:"faults"`
	Took       map[string]int `json:"faults_that_took"`
	Points     map[string]int `json:"failpoints"`
	Calls      map[string]int `json:"calls"`
	Operations map[string]int `json:"operations"`
	Effects    map[string]int `json:"effects"`
	Sessions   int            `json:"sessions"`
	Events     int            `json:"events"`
	Violations []kept         `json:"violations"`
}

// kept is a run with violations.
type kept struct {
	Seed  uint64            `json:"seed"`
	Run   int               `json:"run"`
	Found []check.Violation `json:"found"`
}

// report counts over all runs.
type report struct {
	mu sync.Mutex

	Planted string        `json:"planted,omitempty"`
	Seed    uint64        `json:"first_seed"`
	Wanted  int           `json:"wanted"`
	Elapsed time.Duration `json:"took_ns"`
	PerMin  float64       `json:"runs_a_minute"`
	tally
	// Failures are those of the harness: runs that say nothing, and that were done again.
	Failures []string `json:"harness_failures"`
	// Lost are seeds whose runs the harness could not do.
	Lost []uint64 `json:"lost"`
}

func newTally() *tally {
	return &tally{Faults: map[string]int{}, Took: map[string]int{}, Points: map[string]int{}, Calls: map[string]int{},
		Operations: map[string]int{}, Effects: map[string]int{}}
}

func newReport(o options) *report {
	return &report{Planted: o.Planted, Seed: o.seed, Wanted: o.runs, tally: *newTally()}
}

// count is the tally of one run.
func count(h check.History, found []check.Violation, took, settling time.Duration) *tally {
	t := newTally()
	t.Runs, t.Busy, t.Settling, t.Slowest = 1, took, settling, took
	for _, f := range h.Faults {
		t.Faults[f.Kind]++
		if f.Took {
			t.Took[f.Kind]++
		}
		if name, _, ok := strings.Cut(f.Detail, "="); ok && f.Kind != "ended" {
			t.Points[name]++
		}
	}
	for _, c := range h.Calls {
		t.Calls[fmt.Sprintf("%s %s", c.Method, c.Outcome)]++
	}
	for _, o := range h.Operations {
		t.Operations[strings.TrimSpace(o.GetPhase().String()+" "+o.GetError().GetCode())]++
	}
	for _, e := range h.Effects {
		if e.Stage == sim.StageEffect {
			t.Effects[string(e.Kind)]++
		}
	}
	t.Sessions, t.Events = len(h.Sessions), len(h.Events)
	if len(found) > 0 {
		t.Violations = []kept{{Seed: h.Header.Seed, Found: found}}
	}
	return t
}

// add takes the tally of a run.
func (r *report) add(t *tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Runs += t.Runs
	r.Busy += t.Busy
	r.Settling += t.Settling
	r.Slowest = max(r.Slowest, t.Slowest)
	for _, pair := range [][2]map[string]int{
		{r.Faults, t.Faults}, {r.Took, t.Took}, {r.Points, t.Points}, {r.Calls, t.Calls}, {r.Operations, t.Operations},
		{r.Effects, t.Effects},
	} {
		for name, n := range pair[1] {
			pair[0][name] += n
		}
	}
	r.Sessions += t.Sessions
	r.Events += t.Events
	for _, k := range t.Violations {
		k.Run = r.Runs
		r.Violations = append(r.Violations, k)
	}
}

// progress returns a line on the progress of the work, elapsed after its beginning.
func (r *report) progress(elapsed time.Duration) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := fmt.Sprintf("%d of %d runs, %d with violations", r.Runs, r.Wanted, len(r.Violations))
	if r.Runs > 0 {
		rate := float64(r.Runs) / elapsed.Minutes()
		left := time.Duration(float64(r.Wanted-r.Runs) / rate * float64(time.Minute))
		out += fmt.Sprintf(", %.1f a minute, %v left at most", rate, left.Round(time.Second))
	}
	return out
}

// finish notes how long it took.
func (r *report) finish(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Elapsed = took
	r.PerMin = float64(r.Runs) / took.Minutes()
}

func (r *report) harness(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Failures = append(r.Failures, err.Error())
}

func (r *report) lost(seed uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Lost = append(r.Lost, seed)
}

func (r *report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return r.json(w)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	if r.Planted != "" {
		row("taken away", r.Planted)
	}
	row("runs", fmt.Sprintf("%d of %d", r.Runs, r.Wanted))
	row("time", fmt.Sprintf("%v (%.1f runs a minute)", r.Elapsed.Round(time.Second), r.PerMin))
	runs := time.Duration(max(r.Runs, 1))
	row("of a run", fmt.Sprintf("%v, %v of it coming to rest; the slowest %v",
		(r.Busy/runs).Round(10*time.Millisecond), (r.Settling/runs).Round(10*time.Millisecond),
		r.Slowest.Round(100*time.Millisecond)))
	row("faults", listed(r.Faults))
	row("of these seen to take effect", listed(r.Took))
	row("failpoints armed", listed(r.Points))
	row("calls", listed(r.Calls))
	row("operations", listed(r.Operations))
	row("effects", listed(r.Effects))
	row("sessions opened", r.Sessions)
	row("events watched", r.Events)
	row("runs with violations", len(r.Violations))
	row("runs that the harness did again", len(r.Failures)-len(r.Lost))
	row("runs that the harness lost", len(r.Lost))
	row("target", r.target())
	if err := t.Flush(); err != nil {
		return err
	}
	for _, k := range r.Violations {
		for _, v := range k.Found {
			fmt.Fprintf(w, "seed %d (run %d): %v\n", k.Seed, k.Run, v)
		}
	}
	return nil
}

// target returns a line with the aim, and whether it was met.
func (r *report) target() string {
	met, aim := "missed", fmt.Sprintf("%d runs, each with a fault at least, without a violation", r.Wanted)
	if r.Planted != "" {
		aim = fmt.Sprintf("a violation within %d runs", r.Wanted)
	}
	if r.Planted != "" && len(r.Violations) > 0 || r.Planted == "" && len(r.Violations) == 0 && r.Runs >= r.Wanted {
		met = "met"
	}
	return aim + ": " + met
}

func (r *report) json(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// listed returns the sum and its parts.
func listed(counts map[string]int) string {
	sum := 0
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		sum += counts[name]
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return fmt.Sprintf("%d: %s", sum, strings.Join(parts, ", "))
}

// verdict is the end of the program: with everything in place no run may have violations, without something one must.
func (r *report) verdict(o options) error {
	switch {
	case o.Planted != "" && len(r.Violations) == 0:
		return fmt.Errorf("%d runs without %s, and nothing was noticed", r.Runs, o.Planted)
	case o.Planted != "":
		return nil
	case len(r.Violations) > 0:
		return fmt.Errorf("%d of %d runs have violations; see %s", len(r.Violations), r.Runs, o.out)
	case len(r.Lost) > 0:
		return fmt.Errorf("the harness lost the runs of seeds %v", r.Lost)
	case r.Runs == 0:
		return errors.New("nothing was run")
	case r.Runs < r.Wanted:
		return fmt.Errorf("%d of %d runs were done; go on with --resume", r.Runs, r.Wanted)
	}
	return nil
}
