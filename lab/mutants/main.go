package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options are the settings of a run.
type options struct {
	seed    uint64 // of requirements
	seeds   []uint64
	sample  int
	jobs    int
	only    string
	least   float64
	explain string
	again   string
	root    string
	// own leaves the tests of other packages out.
	own bool
	// patience is what a hanging mutant is given beyond three times what its tests usually take.
	patience time.Duration
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "requirements" {
		mainRequirements(os.Args[2:])
		return
	}
	var o options
	o.seeds = []uint64{1}
	flag.Func("seed", "seed of the sample, or several with commas between: each has its own figure (default 1)",
		func(text string) (err error) { o.seeds, err = seedsOf(text); return err })
	flag.IntVar(&o.sample, "sample", 1000, "how many mutants are drawn by each seed; 0 for all")
	flag.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "how many mutants are tried at once")
	flag.StringVar(&o.only, "only", ".", "only packages that match this")
	flag.Float64Var(&o.least, "least", 90, "percentage of killed mutants below which the run fails")
	flag.StringVar(&o.explain, "explained", "lab/mutants/survivors.txt", "survivors that are explained")
	flag.StringVar(&o.again, "again", "", "only mutants that this file names: the output of a run before")
	flag.BoolVar(&o.own, "own", false, "only try each package's own tests, which is quicker")
	flag.StringVar(&o.root, "root", ".", "the top of the tree")
	flag.DurationVar(&o.patience, "patience", 10*time.Second,
		"what a mutant may take beyond three times what its tests usually take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, targets)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// work is a unit with its mutants.
type work struct {
	u     *unit
	all   []*mutant
	drawn []*mutant
	needs map[string][]edit
	// took is how long the unit's own tests took.
	took time.Duration
}

func run(ctx context.Context, o options, targets []target) error {
	known, err := readExplained(o.explain)
	if err != nil {
		return err
	}
	if o.root, err = filepath.Abs(o.root); err != nil {
		return err
	}
	units, err := load(ctx, o.root, targets)
	if err != nil {
		return err
	}
	var all []*mutant
	var works []*work
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	highest := 0
	for i := range units {
		w := &work{u: &units[i]}
		w.all, w.needs = find(w.u)
		for _, m := range w.all { // one copy of the tree holds the mutants of all units
			m.id += highest
		}
		highest += len(w.all)
		works = append(works, w)
		all = append(all, w.all...)
	}
	samples, drawn := drawEach(all, o.seeds, o.sample)
	fmt.Printf("%d mutants in %d packages; %d drawn with the seeds %v\n", len(all), len(works), len(drawn), o.seeds)
	if drawn, err = again(drawn, o.again); err != nil {
		return err
	}
	works = slices.DeleteFunc(works, func(w *work) bool { return !only.MatchString(w.u.dir) })
	for _, w := range works {
		w.drawn = slices.DeleteFunc(slices.Clone(drawn), func(m *mutant) bool { return m.dir != w.u.dir })
	}
	verdicts, err := tryAll(ctx, o, works)
	if err != nil {
		return err
	}
	r := report{known: known, samples: samples}
	for _, w := range works {
		r.add(w, verdicts)
	}
	r.table()
	return errors.Join(r.stale(all), r.enough(o.least))
}

// seedsOf parses numbers with commas between.
func seedsOf(text string) ([]uint64, error) {
	var out []uint64
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(field), 10, 64)
		if err != nil || slices.Contains(out, n) {
			return nil, fmt.Errorf("%q is no number, or is there twice", field)
		}
		out = append(out, n)
	}
	return out, nil
}

// sample is what one seed draws, and the figure of it.
type sample struct {
	seed  uint64
	holds map[*mutant]bool
	row   row
}

// drawEach draws a sample by each seed. It returns them, and all that are in one, in the order of draw.
func drawEach(all []*mutant, seeds []uint64, n int) (samples []sample, union []*mutant) {
	in := map[*mutant]bool{}
	for _, seed := range seeds {
		s := sample{seed: seed, holds: map[*mutant]bool{}, row: row{dir: fmt.Sprintf("seed %d", seed)}}
		for _, m := range draw(all, seed, n) {
			s.holds[m], in[m] = true, true
		}
		samples = append(samples, s)
	}
	for m := range in {
		union = append(union, m)
	}
	slices.SortFunc(union, byPlace)
	return samples, union
}

// again keeps the mutants that a file names.
func again(drawn []*mutant, path string) ([]*mutant, error) {
	if path == "" {
		return drawn, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		named[strings.TrimSpace(line)] = true
	}
	return slices.DeleteFunc(slices.Clone(drawn), func(m *mutant) bool { return !named[m.key] }), nil
}

// report collects what came of all mutants.
type report struct {
	known map[string]explained
	rows  []row
	// samples are of one seed each.
	samples []sample
	// wrong are explanations of mutants that do not live.
	wrong []string
}

type row struct {
	dir                                        string
	mutants, killed, timedOut, alive, accepted int
	equivalent                                 int
	took                                       time.Duration
}

// add counts a unit's mutants and prints those that live and are not explained.
func (r *report) add(w *work, verdicts map[int]verdict) {
	line := row{dir: w.u.dir, mutants: len(w.drawn), took: w.took}
	for _, m := range w.drawn {
		v := verdicts[m.id]
		e, isExplained := r.known[m.key]
		line.count(v, e, isExplained)
		for i := range r.samples {
			if r.samples[i].holds[m] {
				r.samples[i].row.mutants++
				r.samples[i].row.count(v, e, isExplained)
			}
		}
		switch dead := v == killed || v == timedOut; {
		case dead && isExplained:
			r.wrong = append(r.wrong, "is explained and killed: "+m.key)
		case !dead && !isExplained:
			fmt.Printf("\n%s/%s:%d: %s\n\t%s\n\t- %s\n\t+ %s\n", m.dir, m.file, m.line, v, m.key,
				strings.TrimSpace(m.removed), strings.TrimSpace(m.added))
		}
	}
	r.rows = append(r.rows, line)
}

// count adds one verdict.
func (l *row) count(v verdict, e explained, isExplained bool) {
	switch {
	case v == killed:
		l.killed++
	case v == timedOut:
		l.timedOut++
	case isExplained && e.equivalent:
		l.equivalent++
	case isExplained:
		l.accepted++
	default:
		l.alive++
	}
}

// table prints the counts.
func (r *report) table() {
	fmt.Printf("\n%-30s %7s %7s %9s %8s %8s %10s %6s %6s\n",
		"package", "mutants", "killed", "timed out", "survived", "accepted", "equivalent", "%", "own s")
	lines := append(slices.Clone(r.rows), r.sum())
	for _, s := range r.samples {
		lines = append(lines, s.row)
	}
	for _, l := range lines {
		fmt.Printf("%-30s %7d %7d %9d %8d %8d %10d %6.1f %6.0f\n",
			l.dir, l.mutants, l.killed, l.timedOut, l.alive, l.accepted, l.equivalent, l.percent(), l.took.Seconds())
	}
	fmt.Println("\n% is (killed + timed out) of all that are not equivalent; accepted ones count as survivors")
}

func (r *report) sum() row {
	all := row{dir: "all"}
	for _, l := range r.rows {
		all.mutants += l.mutants
		all.killed += l.killed
		all.timedOut += l.timedOut
		all.alive += l.alive
		all.accepted += l.accepted
		all.equivalent += l.equivalent
		all.took += l.took
	}
	return all
}

func (l row) percent() float64 {
	counted := l.mutants - l.equivalent
	if counted == 0 {
		return 100
	}
	return 100 * float64(l.killed+l.timedOut) / float64(counted)
}

// stale returns an error for explanations that no longer explain anything.
func (r *report) stale(all []*mutant) error {
	exists := map[string]bool{}
	for _, m := range all {
		exists[m.key] = true
	}
	for key := range r.known {
		if !exists[key] {
			r.wrong = append(r.wrong, "is explained and does not exist: "+key)
		}
	}
	if len(r.wrong) == 0 {
		return nil
	}
	slices.Sort(r.wrong)
	return errors.New(strings.Join(r.wrong, "\n"))
}

// enough returns an error for each seed whose sample has too many survivors.
func (r *report) enough(least float64) error {
	var errs []error
	for _, s := range r.samples {
		if p := s.row.percent(); p < least {
			errs = append(errs, fmt.Errorf("seed %d: %.1f %% of the mutants were killed, want %.0f %%", s.seed, p, least))
		}
	}
	return errors.Join(errs...)
}
