package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The reasons for which a line, or a test of it, is not measured.
const (
	noGoTest   = "it names no Go test"
	notBuilt   = "its tests need a build tag"
	notRunHere = "its tests fail or are skipped on this machine without a break"
	noProduct  = "its tests execute nothing of the product that the tests beside them do not"
)

// spares is how many mutants are drawn for each break that is wanted, as some turn out to be none.
const spares = 4

// noBreak is the verdict of a mutant after which a function does not return: any test that runs notices it, so that
// another is drawn.
const noBreak verdict = "no break"

// measure breaks the code under one line and runs the line's tests.
func (w *wholeTree) measure(ctx context.Context, r requirement, o lineOptions) (outcome, error) {
	out := outcome{requirement: r, unmeasured: noGoTest}
	var reached []reach
	for _, t := range r.tests {
		x, reason, err := w.reachOf(ctx, t, r.tests, o.seed)
		if err != nil {
			return out, err
		}
		if out.unmeasured = reason; reason == "" && len(x.ids) > 0 {
			reached = append(reached, x)
		} else if reason == "" {
			out.unmeasured = noProduct
		}
	}
	drawn := drawBreaks(r, reached, w.vocabulary, o.seed, spares*o.breaks)
	for len(drawn) > 0 && len(out.breaks) < o.breaks {
		batch := make([]tried, min(len(drawn), o.breaks-len(out.breaks)))
		err := each(ctx, o.jobs, len(batch), func(ctx context.Context, i int) error {
			v, err := w.tryBreak(ctx, drawn[i], reached)
			batch[i] = tried{drawn[i], v}
			return err
		})
		if err != nil {
			return out, err
		}
		drawn = drawn[len(batch):]
		out.breaks = append(out.breaks, slices.DeleteFunc(batch, func(b tried) bool { return b.verdict == noBreak })...)
	}
	if len(out.breaks) > 0 {
		out.unmeasured = ""
	} else if len(reached) > 0 {
		out.unmeasured = noProduct
	}
	return out, nil
}

// binary returns the test binary of a package with all mutants in it: nil if no test of it compiles without a tag.
func (w *wholeTree) binary(ctx context.Context, dir string) (*binary, error) {
	if bin, ok := w.binaries[dir]; ok {
		return bin, nil
	}
	bin, err := w.bench.build(ctx, dir)
	if err != nil {
		return nil, err
	}
	if bin != nil {
		bin.env = []string{"INGOT_TEST_PROGRAMS=" + w.programDir}
		if bin.list, err = bin.names(ctx, "."); err != nil {
			return nil, err
		}
	}
	w.binaries[dir] = bin
	return bin, nil
}

// reachOf runs a named test and some others of its package. It returns what they execute, or why it cannot be measured.
func (w *wholeTree) reachOf(
	ctx context.Context, t namedTest, named []namedTest, seed uint64,
) (x reach, reason string, err error) {
	bin, err := w.binary(ctx, t.dir)
	if err != nil {
		return x, "", err
	}
	if bin == nil || !slices.Contains(bin.list, t.name) {
		return x, notBuilt, nil
	}
	ids, ok, err := bin.executes(ctx, t.name)
	if err != nil || !ok {
		return x, notRunHere, err
	}
	x = reach{test: t, ids: slices.Sorted(maps.Keys(ids)), others: map[int]int{}}
	others := slices.DeleteFunc(shuffled(bin.list, seed, func(name string) string { return name }),
		func(name string) bool { return slices.Contains(named, namedTest{t.dir, name}) })
	for _, name := range others[:min(len(others), compared)] {
		ids, ok, err := bin.executes(ctx, name)
		if err != nil {
			return x, "", err
		}
		if !ok {
			continue
		}
		x.compared++
		for id := range ids {
			x.others[id]++
		}
	}
	return x, "", nil
}

// executes returns the mutants that a test executes, and reports whether it ran and passed. Each test runs once.
func (bin *binary) executes(ctx context.Context, name string) (map[int]bool, bool, error) {
	if ids, ok := bin.executed[name]; ok {
		return ids, ids != nil, nil
	}
	s, err := bin.trace(ctx, name)
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	var ids map[int]bool
	if err == nil && !strings.Contains(string(s.out), "--- SKIP: "+name+" ") {
		ids = map[int]bool{}
		for _, id := range s.ids {
			ids[id] = true
		}
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "%s of %s fails without a break: %v\n%s\n", name, bin.dir, err, tail(s.out))
	}
	bin.executed[name], bin.took[name] = ids, s.took
	return ids, ids != nil, nil
}

func tail(out []byte) []byte { return out[max(0, len(out)-2000):] }

// tryBreak switches a mutant on and runs the tests of the line that execute it, the quickest package first.
func (w *wholeTree) tryBreak(ctx context.Context, m *mutant, reached []reach) (verdict, error) {
	byDir := map[string][]string{}
	for _, x := range reached {
		if _, found := slices.BinarySearch(x.ids, m.id); found {
			byDir[x.test.dir] = append(byDir[x.test.dir], x.test.name)
		}
	}
	cost := func(dir string) (sum float64) {
		for _, name := range byDir[dir] {
			sum += w.binaries[dir].took[name].Seconds()
		}
		return sum
	}
	dirs := slices.SortedFunc(maps.Keys(byDir),
		func(a, b string) int { return cmp.Or(cmp.Compare(cost(a), cost(b)), strings.Compare(a, b)) })
	for _, dir := range dirs {
		v, out, err := w.binaries[dir].tryTests(ctx, m, w.bench.patience, byDir[dir])
		switch {
		case err == nil && bytes.Contains(out, []byte(endOfFunction)):
			return noBreak, nil
		case err != nil || v != survived:
			return v, err
		}
	}
	return survived, nil
}

// keepDir returns the directory of the mutated copy and what removes it: dir, or a temporary one if dir is empty.
func keepDir(dir string) (string, func(), error) {
	if dir != "" {
		abs, err := filepath.Abs(dir)
		return abs, func() {}, errors.Join(err, os.MkdirAll(dir, 0o755))
	}
	tmp, err := os.MkdirTemp("", "requirements-")
	return tmp, func() { _ = os.RemoveAll(tmp) }, err
}
