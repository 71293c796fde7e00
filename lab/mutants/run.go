package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
)

const (
	buildTags = "grpcnotrace"
	// memory bounds what a mutant may take of the address space, in KiB: a loop that never ends may append.
	memory = 8 << 20
	// testLimit bounds one test without a mutant.
	testLimit = 5 * time.Minute
)

// verdict is what came of a mutant.
type verdict string

const (
	killed   verdict = "killed"
	timedOut verdict = "timed out"
	survived verdict = "survived"
	// unreached mutants survive too: no test executes them.
	unreached verdict = "not reached"
)

// binary is a test binary of one package, with the mutants of a unit in it.
type binary struct {
	path, dir string
	flags     []string
	// reached has the tests that execute each mutant, took the time of each test.
	reached map[int][]string
	took    map[string]time.Duration
	// list are all tests, executed the mutants that a test executes, nil if it does not pass. For lines of requirements.
	list     []string
	executed map[string]map[int]bool
	// env is added to the environment of each run.
	env []string
}

// bench builds and runs the test binaries of one unit.
type bench struct {
	options
	tmp     string
	overlay string
}

// writeMutants writes copies of a unit's files with its mutants into tmp, and adds them to the files to be replaced.
func writeMutants(
	root, tmp string, u *unit, mutants []*mutant, needs map[string][]edit, replace map[string]string,
) error {
	lowest, highest := 0, 0
	if len(mutants) > 0 {
		lowest, highest = mutants[0].id, mutants[0].id
	}
	for _, src := range u.files {
		edits := append([]edit{}, needs[src.path]...)
		for _, m := range mutants {
			lowest, highest = min(lowest, m.id), max(highest, m.id)
			if m.file != filepath.Base(src.path) {
				continue
			}
			for _, e := range m.edits {
				if strings.Contains(e.text, "%d") {
					e.text = fmt.Sprintf(e.text, m.id)
				}
				edits = append(edits, e)
			}
		}
		replace[src.path] = filepath.Join(tmp, filepath.Base(src.path))
		if err := writeChanged(replace[src.path], rewrite(src.text, edits)); err != nil {
			return err
		}
	}
	helper := filepath.Join(tmp, "mutant_switches.go")
	replace[filepath.Join(root, u.dir, "mutant_switches.go")] = helper
	return writeChanged(helper, []byte(switches(u.name, lowest, highest)))
}

// writeChanged writes a file unless it has these bytes already: a build that reads it meanwhile is not disturbed.
func writeChanged(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return os.WriteFile(path, data, 0o600)
}

// writeOverlay writes what the go command's -overlay reads: the files to be replaced, each with its replacement.
func writeOverlay(path string, replace map[string]string) error {
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return writeChanged(path, overlay)
}

// build makes the test binary of a package. Without test files there is none: nil.
func (b *bench) build(ctx context.Context, dir string) (*binary, error) {
	out := filepath.Join(b.tmp, strings.ReplaceAll(dir, "/", "-")+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-trimpath", "-buildvcs=false", "-tags", buildTags,
		"-overlay", b.overlay, "-o", out, "./"+dir)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the tests of %s with mutants: %w\n%s", dir, err, said)
	}
	if _, err := os.Stat(out); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	bin := &binary{path: out, dir: filepath.Join(b.root, dir), reached: map[int][]string{},
		took: map[string]time.Duration{}, executed: map[string]map[int]bool{}}
	files, err := filepath.Glob(filepath.Join(bin.dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(text), `"pgregory.net/rapid"`) {
			// The same draws for every mutant, and no files of failures.
			bin.flags = []string{"-rapid.seed=1", "-rapid.nofailfile"}
		}
	}
	return bin, nil
}

// run starts the binary. It returns an error when a test fails, and context.DeadlineExceeded when it takes too long.
func (bin *binary) run(ctx context.Context, limit time.Duration, env []string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	script := fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, memory)
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, bin.path}, append(args, bin.flags...)...)...)
	cmd.Dir, cmd.Env = bin.dir, slices.Concat(os.Environ(), bin.env, env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	return out, err
}

// names returns the tests whose names match an expression, as in go test -run.
func (bin *binary) names(ctx context.Context, match string) ([]string, error) {
	out, err := bin.run(ctx, time.Minute, nil, "-test.list", match)
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w\n%s", bin.dir, err, out)
	}
	var names []string
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example") {
			names = append(names, name)
		}
	}
	return names, nil
}

// seen is one run of a test without a mutant: how long it took, which mutants it reached, and what it printed.
type seen struct {
	took time.Duration
	ids  []int
	out  []byte
}

// trace runs one test by itself without a mutant.
func (bin *binary) trace(ctx context.Context, name string) (s seen, err error) {
	path := bin.path + "." + name
	start := time.Now()
	s.out, err = bin.run(ctx, testLimit, []string{traceVariable + "=" + path}, "-test.v", "-test.run", "^"+name+"$")
	s.took = time.Since(start)
	ids, readErr := readTrace(path)
	s.ids = ids
	return s, errors.Join(err, readErr)
}

// look runs every test once by itself and notes which mutants it reaches.
// Of another package a test that fails even so is left out, which is printed.
func (bin *binary) look(ctx context.Context, jobs int, match string, own bool) error {
	names, err := bin.names(ctx, match)
	if err != nil {
		return err
	}
	all := make([]seen, len(names))
	err = each(ctx, jobs, len(names), func(ctx context.Context, i int) error {
		s, err := bin.trace(ctx, names[i])
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !own:
			fmt.Printf("%s of %s fails without a mutant and is left out: %v\n", names[i], bin.dir, err)
			return nil
		case err != nil:
			return fmt.Errorf("%s of %s fails without a mutant: %w\n%s", names[i], bin.dir, err, s.out)
		}
		all[i] = s
		return nil
	})
	for i, s := range all {
		bin.took[names[i]] = s.took
		for _, id := range s.ids {
			bin.reached[id] = append(bin.reached[id], names[i])
		}
	}
	return err
}

func readTrace(path string) ([]int, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // it reaches none
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	seen, ids := map[int]bool{}, []int(nil)
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		_, number, _ := strings.Cut(scanner.Text(), " ")
		id, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if !seen[id] {
			seen[id], ids = true, append(ids, id)
		}
	}
	return ids, os.Remove(path)
}

// mostOthers is how many tests of another package are tried on one mutant.
const mostOthers = 12

// closest are the tests that reach the fewest mutants: those that are about little else.
func (bin *binary) closest(names []string) []string {
	reaches := map[string]int{}
	for _, tests := range bin.reached {
		for _, name := range tests {
			reaches[name]++
		}
	}
	names = slices.SortedStableFunc(slices.Values(names),
		func(a, b string) int { return cmp.Compare(reaches[a], reaches[b]) })
	return names[:min(len(names), mostOthers)]
}

// try switches a mutant on and runs the tests that reach it.
func (bin *binary) try(ctx context.Context, m *mutant, patience time.Duration, own bool) (verdict, error) {
	names := bin.reached[m.id]
	if !own {
		names = bin.closest(names)
	}
	if len(names) == 0 {
		return unreached, nil
	}
	for _, batch := range bin.batches(names) {
		v, err := bin.tryBatch(ctx, m, patience, batch)
		if v != survived || err != nil {
			return v, err
		}
	}
	return survived, nil
}

// batches are the quick tests and the slow ones: most mutants are killed by a quick one.
func (bin *binary) batches(names []string) [][]string {
	names = slices.SortedStableFunc(slices.Values(names),
		func(a, b string) int { return cmp.Compare(bin.took[a], bin.took[b]) })
	var all, sum time.Duration
	for _, name := range names {
		all += bin.took[name]
	}
	quick := 0
	for quick < len(names) && sum+bin.took[names[quick]] <= all/2 {
		sum += bin.took[names[quick]]
		quick++
	}
	if quick == 0 {
		return [][]string{names}
	}
	return [][]string{names[:quick], names[quick:]}
}

func (bin *binary) tryBatch(ctx context.Context, m *mutant, patience time.Duration, names []string) (verdict, error) {
	v, _, err := bin.tryTests(ctx, m, patience, names)
	return v, err
}

// tryTests runs tests with a mutant switched on, and returns the verdict and what they printed.
func (bin *binary) tryTests(
	ctx context.Context, m *mutant, patience time.Duration, names []string,
) (verdict, []byte, error) {
	var usual time.Duration
	quoted := make([]string, len(names))
	for i, name := range names {
		usual += bin.took[name]
		quoted[i] = regexp.QuoteMeta(name)
	}
	out, err := bin.run(ctx, patience+3*usual, []string{variable + "=" + strconv.Itoa(m.id)},
		"-test.failfast", "-test.run", "^("+strings.Join(quoted, "|")+")$")
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", out, context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return timedOut, out, nil
	case errors.As(err, &exit):
		return killed, out, nil
	case err != nil:
		return "", out, fmt.Errorf("run %s: %w\n%s", bin.path, err, out)
	}
	return survived, out, nil
}

// each calls fn for 0 to n-1, so many at a time.
func each(ctx context.Context, jobs, n int, fn func(ctx context.Context, i int) error) error {
	g, ctx := task.New(ctx)
	numbers := make(chan int, n)
	for i := range n {
		numbers <- i
	}
	close(numbers)
	for range jobs {
		g.Go("try", func(context.Context) error {
			for i := range numbers {
				if err := fn(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
