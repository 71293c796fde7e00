package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"
)

// row is one figure. A limit of nil is a figure for its own sake.
type row struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Limit is what the figure should not be above, or, with AtLeast, below.
	Limit   *float64 `json:"limit,omitempty"`
	AtLeast bool     `json:"at_least,omitempty"`
	Note    string   `json:"note,omitempty"`
}

// met says whether the figure keeps to its limit.
func (r row) met() bool {
	switch {
	case r.Limit == nil:
		return true
	case r.AtLeast:
		return r.Value >= *r.Limit
	}
	return r.Value <= *r.Limit
}

// report is everything that was measured.
type report struct {
	CPUs        int      `json:"cpus"`
	TookSeconds float64  `json:"took_seconds"`
	Rows        []row    `json:"rows"`
	Missed      []string `json:"missed"`
	Soak        []sample `json:"soak,omitempty"`

	// handshakesPerSecond is what the machine can do, for the storm.
	handshakesPerSecond float64
}

func (r *report) add(what string, value float64, unit, note string, args ...any) {
	r.Rows = append(r.Rows, row{What: what, Value: value, Unit: unit, Note: fmt.Sprintf(note, args...)})
}

func (r *report) atMost(limit float64, what string, value float64, unit, note string, args ...any) {
	r.Rows = append(r.Rows, row{What: what, Value: value, Unit: unit, Limit: &limit, Note: fmt.Sprintf(note, args...)})
}

func (r *report) atLeast(limit float64, what string, value float64, unit, note string, args ...any) {
	r.Rows = append(r.Rows, row{What: what, Value: value, Unit: unit, Limit: &limit, AtLeast: true,
		Note: fmt.Sprintf(note, args...)})
}

func (r *report) finish(took time.Duration) {
	r.CPUs, r.TookSeconds = runtime.NumCPU(), took.Seconds()
	for _, x := range r.Rows {
		if !x.met() {
			r.Missed = append(r.Missed, x.What)
		}
	}
}

// print writes the table.
func (r *report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tmeasured\tlimit\t\tnote")
	for _, x := range r.Rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", x.What, quantity(x.Value, x.Unit), x.limit(), x.verdict(), x.Note)
	}
	for _, s := range r.Soak {
		fmt.Fprintf(w, "soak, %s\t%s\t\t\t%s\n", s.At().Round(time.Second), quantity(s.RSSMiB, "MiB"), s)
	}
	fmt.Fprintf(w, "took\t%.0f s\t\t\ton %d processors\n", r.TookSeconds, r.CPUs)
	return w.Flush()
}

func (r row) limit() string {
	switch {
	case r.Limit == nil:
		return ""
	case r.AtLeast:
		return "≥ " + quantity(*r.Limit, r.Unit)
	}
	return "≤ " + quantity(*r.Limit, r.Unit)
}

func (r row) verdict() string {
	switch {
	case r.Limit == nil:
		return ""
	case r.met():
		return "met"
	}
	return "MISSED"
}

func quantity(v float64, unit string) string {
	switch {
	case v == float64(int64(v)), v >= 1000:
		return fmt.Sprintf("%.0f %s", v, unit)
	case v < 10:
		return fmt.Sprintf("%.2f %s", v, unit)
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}
