package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// delivered are the programs that users get. The product's packages are those that they contain.
var delivered = []string{"./cmd/ingot", "./cmd/ingot-agent", "./cmd/ingot-controller", "./cmd/ingot-image"}

// product returns the packages of this module that the programs contain, in the order of their paths.
func product(ctx context.Context, root string, programs []string) ([]target, error) {
	packages, err := list(ctx, root, append([]string{"-deps"}, programs...)...)
	if err != nil {
		return nil, err
	}
	var out []target
	for _, p := range packages {
		dir, err := filepath.Rel(root, p.Dir)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(dir, "..") || isAid(dir) {
			continue
		}
		out = append(out, target{dir: dir})
	}
	slices.SortFunc(out, func(a, b target) int { return strings.Compare(a.dir, b.dir) })
	return out, nil
}

// isAid reports whether a package of the programs does nothing for their users: it is generated, or injects faults.
func isAid(dir string) bool {
	top, _, _ := strings.Cut(dir, "/")
	return top == "api" || top == "migrations" || top == "vendor" || dir == "internal/failpoint" ||
		dir == "internal/planted"
}

// wholeTree is a copy of the product's packages in which each statement can be broken: one build for all lines.
type wholeTree struct {
	bench *bench
	// vocabulary are the mutants that the copy holds, by their numbers.
	vocabulary
	// programs are the packages of the product's programs, programDir is where they are built for tests that start them.
	programs   []string
	programDir string
	binaries   map[string]*binary
}

// newWholeTree writes the copy into tmp.
func newWholeTree(ctx context.Context, o lineOptions, tmp string) (*wholeTree, error) {
	targets, err := product(ctx, o.root, o.programs)
	if err != nil {
		return nil, err
	}
	units, err := load(ctx, o.root, targets)
	if err != nil {
		return nil, err
	}
	w := &wholeTree{
		bench:    &bench{options: o.options, tmp: tmp, overlay: filepath.Join(tmp, "overlay.json")},
		programs: o.programs, programDir: filepath.Join(tmp, "programs"), binaries: map[string]*binary{},
	}
	replace, mutants, highest := map[string]string{}, map[int]*mutant{}, 0
	for i := range units {
		u := &units[i]
		all, needs := find(u)
		all = slices.DeleteFunc(all, func(m *mutant) bool { return m.fine })
		if len(all) == 0 {
			continue
		}
		for _, m := range all {
			m.id += highest
			mutants[m.id] = m
		}
		highest = all[len(all)-1].id
		dir := filepath.Join(tmp, strings.ReplaceAll(u.dir, "/", "-"))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		if err := writeMutants(o.root, dir, u, all, needs, replace); err != nil {
			return nil, err
		}
	}
	w.vocabulary = newVocabulary(mutants)
	if err := writeOverlay(w.bench.overlay, replace); err != nil {
		return nil, err
	}
	return w, w.buildPrograms(ctx)
}

// buildPrograms builds the copy's programs.
func (w *wholeTree) buildPrograms(ctx context.Context) error {
	if err := os.MkdirAll(w.programDir, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-buildvcs=false", "-tags", buildTags,
		"-ldflags", "-s -w", "-overlay", w.bench.overlay, "-o", w.programDir}, w.programs...)...)
	cmd.Dir, cmd.Env = w.bench.root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs with mutants: %w\n%s", err, out)
	}
	return nil
}
