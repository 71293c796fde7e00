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

// report counts over all runs.
type report struct {
	mu sync.Mutex

	Planted    string         `json:"planted,omitempty"`
	Seed       uint64         `json:"first_seed"`
	Runs       int            `json:"runs"`
	Took       time.Duration  `json:"took_ns"`
	Slowest    time.Duration  `json:"slowest_ns"`
	Faults     map[string]int `json:"faults"`
	Points     map[string]int `json:"failpoints"`
	Calls      map[string]int `json:"calls"`
	Operations map[string]int `json:"operations"`
	Effects    map[string]int `json:"effects"`
	Sessions   int            `json:"sessions"`
	Events     int            `json:"events"`
	Violations []kept         `json:"violations"`
	// Failures are those of the harness: runs that say nothing.
	Failures []string `json:"harness_failures"`
}

// kept is a run with violations.
type kept struct {
	Seed  uint64            `json:"seed"`
	Run   int               `json:"run"`
	Found []check.Violation `json:"found"`
}

func newReport(o options) *report {
	return &report{
		Planted: o.planted, Seed: o.seed, Faults: map[string]int{}, Points: map[string]int{}, Calls: map[string]int{},
		Operations: map[string]int{}, Effects: map[string]int{},
	}
}

func (r *report) add(h check.History, found []check.Violation, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Runs++
	r.Slowest = max(r.Slowest, took)
	for _, f := range h.Faults {
		r.Faults[f.Kind]++
		if name, _, ok := strings.Cut(f.Detail, "="); ok && f.Kind != "ended" {
			r.Points[name]++
		}
	}
	for _, c := range h.Calls {
		r.Calls[fmt.Sprintf("%s %s", c.Method, c.Outcome)]++
	}
	for _, o := range h.Operations {
		r.Operations[strings.TrimSpace(o.GetPhase().String()+" "+o.GetError().GetCode())]++
	}
	for _, e := range h.Effects {
		if e.Stage == sim.StageEffect {
			r.Effects[string(e.Kind)]++
		}
	}
	r.Sessions += len(h.Sessions)
	r.Events += len(h.Events)
	if len(found) > 0 {
		r.Violations = append(r.Violations, kept{h.Header.Seed, r.Runs, found})
	}
	if r.Runs%25 == 0 {
		say("%d runs, %d with violations", r.Runs, len(r.Violations))
	}
}

func (r *report) harness(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Failures = append(r.Failures, err.Error())
}

func (r *report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	if r.Planted != "" {
		row("taken away", r.Planted)
	}
	row("runs", r.Runs)
	row("time", fmt.Sprintf("%v (%.1f runs a minute, the slowest %v)", r.Took.Round(time.Second), float64(r.Runs)/r.Took.Minutes(), r.Slowest.Round(100*time.Millisecond)))
	row("faults", listed(r.Faults))
	row("failpoints armed", listed(r.Points))
	row("calls", listed(r.Calls))
	row("operations", listed(r.Operations))
	row("effects", listed(r.Effects))
	row("sessions opened", r.Sessions)
	row("events watched", r.Events)
	row("runs with violations", len(r.Violations))
	row("runs that the harness lost", len(r.Failures))
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

// listed gives the sum and its parts.
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
	case o.planted != "" && len(r.Violations) == 0:
		return fmt.Errorf("%d runs without %s, and nothing was noticed", r.Runs, o.planted)
	case o.planted != "":
		return nil
	case len(r.Violations) > 0:
		return fmt.Errorf("%d of %d runs have violations; see %s", len(r.Violations), r.Runs, o.out)
	case len(r.Failures) > 0:
		return errors.New("the harness lost runs")
	case r.Runs == 0:
		return errors.New("nothing was run")
	}
	return nil
}
