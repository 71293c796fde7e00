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
	"strings"
	"syscall"
	"time"
)

// compared is how many other tests of its package a named test is compared with.
const compared = 8

// lineOptions are the flags of `mutants requirements`.
type lineOptions struct {
	options
	lines, breaks int
	match, within string
	dir           string
	// keep is the directory of the mutated copy, or empty for a temporary one.
	keep string
	// programs are the packages of the programs whose packages are broken.
	programs []string
}

func mainRequirements(args []string) {
	o := lineOptions{programs: delivered}
	f := flag.NewFlagSet("mutants requirements", flag.ExitOnError)
	f.Uint64Var(&o.seed, "seed", 1, "seed of the lines and of their breaks")
	f.IntVar(&o.lines, "lines", 100, "how many lines are measured; 0 for all")
	f.IntVar(&o.breaks, "breaks", 5, "how many breaks are drawn for each line")
	f.StringVar(&o.match, "match", ".", "only lines whose numbers match this, for instance '^F2\\.'")
	f.StringVar(&o.within, "within", ".", "only lines all of whose tests match this, for instance '^controller/domain/'")
	f.StringVar(&o.dir, "requirements", "docs/requirements", "the directory of the lines")
	f.StringVar(&o.keep, "tree", "", "directory for the mutated copy, which a later run then builds faster")
	f.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "how many breaks are tried at once")
	f.Float64Var(&o.least, "least", 95, "percentage of noticed lines below which the run fails")
	f.StringVar(&o.root, "root", ".", "the top of the tree")
	f.DurationVar(&o.patience, "patience", 10*time.Second,
		"what a break may take beyond three times what its tests usually take")
	_ = f.Parse(args) // it exits
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := breakRequirements(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants requirements:", err)
		os.Exit(1)
	}
}

// outcome is what became of one line.
type outcome struct {
	requirement
	breaks []tried
	// unmeasured is the reason why no break was tried, or empty.
	unmeasured string
}

// tried is a break and its verdict.
type tried struct {
	*mutant
	verdict verdict
}

// noticed returns how many of the line's breaks its tests noticed.
func (o outcome) noticed() (n int) {
	for _, b := range o.breaks {
		if b.verdict == killed || b.verdict == timedOut {
			n++
		}
	}
	return n
}

// held reports whether the tests noticed more than half of the breaks.
func (o outcome) held() bool { return 2*o.noticed() > len(o.breaks) }

func breakRequirements(ctx context.Context, o lineOptions) (err error) {
	if o.root, err = filepath.Abs(o.root); err != nil {
		return err
	}
	lines, err := readRequirements(o.dir)
	if err != nil {
		return err
	}
	if lines, err = selected(lines, o.match, o.within); err != nil {
		return err
	}
	lines = shuffled(lines, o.seed, func(r requirement) string { return r.number })
	dir, remove, err := keepDir(o.keep)
	if err != nil {
		return err
	}
	defer remove()
	w, err := newWholeTree(ctx, o, dir)
	if err != nil {
		return err
	}
	fmt.Printf("%d lines, %d possible breaks; seed %d\n", len(lines), len(w.mutants), o.seed)
	all, err := w.measureAll(ctx, lines, o)
	if err != nil {
		return err
	}
	return summary(all, o.least)
}

// selected returns the lines whose numbers match an expression, and all of whose tests match another.
func selected(lines []requirement, numbers, tests string) ([]requirement, error) {
	match, err := regexp.Compile(numbers)
	if err != nil {
		return nil, err
	}
	within, err := regexp.Compile(tests)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(lines, func(r requirement) bool {
		return !match.MatchString(r.number) ||
			slices.ContainsFunc(r.tests, func(t namedTest) bool { return !within.MatchString(t.String()) })
	}), nil
}

// measureAll measures lines in their order until o.lines of them have a verdict, and prints each.
func (w *wholeTree) measureAll(ctx context.Context, lines []requirement, o lineOptions) ([]outcome, error) {
	all, measured := []outcome(nil), 0
	for _, r := range lines {
		if o.lines > 0 && measured == o.lines {
			break
		}
		x, err := w.measure(ctx, r, o)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		if x.unmeasured == "" {
			measured++
		}
		x.print()
		all = append(all, x)
	}
	return all, nil
}

// print writes a line with its breaks.
func (o outcome) print() {
	switch {
	case o.unmeasured != "":
		fmt.Printf("\n%s not measured: %s\n", o.number, o.unmeasured)
		return
	case o.held():
		fmt.Printf("\n%s noticed (%d of %d): %s\n", o.number, o.noticed(), len(o.breaks), o.text)
	default:
		fmt.Printf("\n%s NOT NOTICED (%d of %d): %s\n\t%s\n", o.number, o.noticed(), len(o.breaks), o.text, o.at)
	}
	for _, b := range o.breaks {
		fmt.Printf("\t%-9s %s/%s:%d: %s\n", b.verdict, b.dir, b.file, b.line, strings.TrimPrefix(b.key, b.dir+" "))
	}
}

// summary prints the shares, and returns an error if too few lines were noticed.
func summary(all []outcome, least float64) error {
	var lines, held, once, breaks, noticed int
	reasons := map[string][]string{}
	for _, o := range all {
		if o.unmeasured != "" {
			reasons[o.unmeasured] = append(reasons[o.unmeasured], o.number)
			continue
		}
		lines++
		breaks += len(o.breaks)
		noticed += o.noticed()
		if o.held() {
			held++
		}
		if o.noticed() > 0 {
			once++
		}
	}
	fmt.Printf("\n%d lines were drawn, %d of them measured\n", len(all), lines)
	fmt.Printf("noticed, more than half of their breaks: %d lines (%.1f %%)\n", held, percent(held, lines))
	fmt.Printf("noticed, at least one of their breaks:   %d lines (%.1f %%)\n", once, percent(once, lines))
	fmt.Printf("breaks noticed: %d of %d (%.1f %%)\n", noticed, breaks, percent(noticed, breaks))
	for reason, numbers := range reasons {
		fmt.Printf("not measured, %s: %s\n", reason, strings.Join(numbers, " "))
	}
	switch p := percent(held, lines); {
	case lines == 0:
		return errors.New("no line was measured")
	case p < least:
		return fmt.Errorf("%.1f %% of the broken lines were noticed, want %.0f %%", p, least)
	}
	return nil
}

func percent(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) }
