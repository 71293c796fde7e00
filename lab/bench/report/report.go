// Package report collects the figures of benchmarks, prints them, keeps them in one file, and makes the performance
// page of that.
package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

// Path is the file of all results, below the top of the tree.
const Path = "docs/reference/performance.json"

// Run is one run of one benchmark, on one machine.
type Run struct {
	// Name identifies the benchmark: a run replaces the one before of the same name.
	Name  string `json:"name"`
	Title string `json:"title"`
	// About describes the measurement, and what it is compared with.
	About   string `json:"about"`
	Command string `json:"command"`
	Machine string `json:"machine"`
	Date    string `json:"date"`
	Commit  string `json:"commit"`
	// Recorded is true of figures that people have written down from a run, and false of those that the run stored itself.
	Recorded bool     `json:"recorded,omitempty"`
	Figures  []Figure `json:"figures"`
	// Curve is drawn from the figures that have an X.
	Curve *Curve `json:"curve,omitempty"`
}

// Figure is one measured number, with one sentence that explains it.
type Figure struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Limit *Limit  `json:"limit,omitempty"`
	Says  string  `json:"says"`
	// X is the place of the figure on the run's curve. Zero keeps it out.
	X float64 `json:"x,omitempty"`
}

// Limit is what a figure must not exceed, or, with AtLeast, what it must reach.
type Limit struct {
	Value   float64 `json:"value"`
	AtLeast bool    `json:"at_least,omitempty"`
	// Of names the source of the limit, if another figure of the same run sets it.
	Of string `json:"of,omitempty"`
}

// Curve names the axes of a line plot: figures over X, beside their limits.
type Curve struct {
	Title    string `json:"title"`
	X        string `json:"x"`
	Measured string `json:"measured"`
	Limit    string `json:"limit"`
}

// AtMost is a limit that must not be exceeded.
func AtMost(v float64) *Limit { return &Limit{Value: v} }

// AtLeast is a limit that must be reached.
func AtLeast(v float64, of string) *Limit { return &Limit{Value: v, AtLeast: true, Of: of} }

// Met reports whether the figure keeps to its limit.
func (f Figure) Met() bool {
	switch {
	case f.Limit == nil:
		return true
	case f.Limit.AtLeast:
		return f.Value >= f.Limit.Value
	}
	return f.Value <= f.Limit.Value
}

// Report collects the runs of one command.
type Report struct {
	Runs []*Run `json:"runs"`
}

// Run returns the run of that name, which has no figures at first.
func (r *Report) Run(name, title, about string) *Run {
	for _, run := range r.Runs {
		if run.Name == name {
			return run
		}
	}
	run := &Run{Name: name, Title: title, About: about}
	r.Runs = append(r.Runs, run)
	return run
}

// Add appends a figure. Without a limit it stands for its own sake. The sentence gets its capital and its full stop.
func (r *Run) Add(what string, value float64, unit string, limit *Limit, says string, args ...any) *Figure {
	text := fmt.Sprintf(says, args...)
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:] + "."
	r.Figures = append(r.Figures, Figure{What: what, Value: value, Unit: unit, Limit: limit, Says: text})
	return &r.Figures[len(r.Figures)-1]
}

// Value returns the value of a figure; 0 where there is none of the name.
func (r *Run) Value(what string) float64 {
	for _, f := range r.Figures {
		if f.What == what {
			return f.Value
		}
	}
	return 0
}

// Beside adds the same figure of another run to the sentence.
func (f *Figure) Beside(other Figure, when string) {
	f.Says = fmt.Sprintf("%s; %s %s.", strings.TrimSuffix(f.Says, "."), when, quantity(other.Value, other.Unit))
}

// Print writes a table of each run.
func (r *Report) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, run := range r.Runs {
		fmt.Fprintf(w, "%s\tmeasured\tlimit\t\t\n", run.Title)
		for _, f := range run.Figures {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.What, quantity(f.Value, f.Unit), f.limit(),
				strings.ToUpper(strings.Trim(f.verdict(), "*")), f.Says)
		}
	}
	return w.Flush()
}

// Store puts the runs into the file of results, and writes the performance page anew. Command is the command line.
func (r *Report) Store(ctx context.Context, path, command string) error {
	for _, run := range r.Runs {
		here, err := run.Here(ctx, command)
		if err != nil {
			return err
		}
		if err := Store(path, here); err != nil {
			return err
		}
	}
	return WritePage(path)
}

type file struct {
	Runs []Run `json:"runs"`
}

// Load reads the results of a file.
func Load(path string) ([]Run, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read benchmark results: %w", err)
	}
	var f file
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("read benchmark results of %s: %w", path, err)
	}
	return f.Runs, nil
}

// Store puts a run in the place of the one before of the same name, or behind all others.
func Store(path string, r Run) error {
	runs, err := Load(path)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(runs, func(old Run) bool { return old.Name == r.Name })
	if i < 0 {
		runs = append(runs, r)
	} else {
		runs[i] = r
	}
	b, err := encode(runs)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return fmt.Errorf("store benchmark results: %w", err)
	}
	return nil
}

func encode(runs []Run) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(file{runs}); err != nil {
		return nil, fmt.Errorf("encode benchmark results: %w", err)
	}
	return b.Bytes(), nil
}
