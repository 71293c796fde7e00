package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// trial tries mutants of many units. They stand behind switches in one copy of the tree, so that the tests of a package
// are built once, and run once without a mutant.
type trial struct {
	*bench
	works    []*work
	binaries map[tests]*binary
	verdicts map[int]verdict
}

// tryAll returns the verdicts on the drawn mutants, by their numbers. It stores with each work how long its own tests
// took.
func tryAll(ctx context.Context, o options, works []*work) (verdicts map[int]verdict, err error) {
	tmp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	t := &trial{bench: &bench{options: o, tmp: tmp, overlay: filepath.Join(tmp, "overlay.json")}, works: works,
		binaries: map[tests]*binary{}, verdicts: map[int]verdict{}}
	if err := t.write(); err != nil {
		return nil, err
	}
	for _, w := range works {
		start := time.Now()
		if err := t.tryWith(ctx, tests{w.u.dir, "."}, w.drawn, true); err != nil {
			return nil, err
		}
		w.took = time.Since(start)
	}
	if !o.own {
		for _, of := range t.others() {
			if err := t.tryWith(ctx, of, t.left(of), false); err != nil {
				return nil, err
			}
		}
	}
	return t.verdicts, ctx.Err() // what was not tried is no verdict
}

// write writes the copies of all units with their mutants.
func (t *trial) write() error {
	replace := map[string]string{}
	for _, w := range t.works {
		if len(w.drawn) == 0 {
			continue
		}
		dir := filepath.Join(t.tmp, strings.ReplaceAll(w.u.dir, "/", "-"))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := writeMutants(t.root, dir, w.u, w.drawn, w.needs, replace); err != nil {
			return err
		}
		for _, m := range w.drawn {
			t.verdicts[m.id] = unreached
		}
	}
	return writeOverlay(t.overlay, replace)
}

// others returns the tests of other packages that a unit is tried with, each once.
func (t *trial) others() (out []tests) {
	for _, w := range t.works {
		for _, of := range w.u.also {
			if !slices.Contains(out, of) {
				out = append(out, of)
			}
		}
	}
	return out
}

// left returns the mutants that live, of the units that are tried with these tests.
func (t *trial) left(of tests) (out []*mutant) {
	for _, w := range t.works {
		for _, m := range w.drawn {
			if v := t.verdicts[m.id]; slices.Contains(w.u.also, of) && v != killed && v != timedOut {
				out = append(out, m)
			}
		}
	}
	return out
}

// tryWith tries the tests of one package on some mutants, which are of that package if own is set.
func (t *trial) tryWith(ctx context.Context, of tests, left []*mutant, own bool) error {
	if len(left) == 0 {
		return nil
	}
	start := time.Now()
	bin, built := t.binaries[of]
	if !built {
		var err error
		if bin, err = t.build(ctx, of.dir); err != nil {
			return err
		}
		if t.binaries[of] = bin; bin != nil {
			if err := bin.look(ctx, t.jobs, of.run, own); err != nil {
				return err
			}
		}
	}
	if bin == nil {
		return nil
	}
	found := make([]verdict, len(left))
	err := each(ctx, t.jobs, len(left), func(ctx context.Context, i int) (err error) {
		found[i], err = bin.try(ctx, left[i], t.patience, own)
		return err
	})
	alive := 0
	for i, m := range left {
		if found[i] != unreached && found[i] != "" {
			t.verdicts[m.id] = found[i]
		}
		if v := t.verdicts[m.id]; v != killed && v != timedOut {
			alive++
		}
	}
	fmt.Fprintf(
		os.Stderr,
		"%s: %d mutants, %d of them left, %.0f s\n",
		of.dir,
		len(left),
		alive,
		time.Since(start).Seconds(),
	)
	return err
}
