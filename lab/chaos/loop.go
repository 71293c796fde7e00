package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/chaos/trial"
)

// loop hands seeds to cells.
type loop struct {
	o       options
	begun   time.Time
	journal *journal
	r       *report

	mu    sync.Mutex
	next  map[bool]int // by whether the world is wide
	again []uint64     // seeds whose runs the harness has to do once more
	tried map[uint64]int
	stop  bool
	kept  int
}

// breakThings does all runs.
func breakThings(ctx context.Context, o options) (*report, error) {
	if err := errors.Join(os.MkdirAll(o.out, 0o755), trial.Sweep(os.TempDir())); err != nil {
		return nil, err
	}
	l := &loop{o: o, begun: time.Now(), r: newReport(o), tried: map[uint64]int{},
		next: map[bool]int{}}
	var err error
	if l.journal, err = openJournal(o.out, o.resume, l.known); err != nil {
		return nil, err
	}
	cells, _ := task.New(ctx)
	for i := range min(o.cells, o.runs) {
		cells.Go(fmt.Sprintf("cell %d", i), func(ctx context.Context) error { return l.work(ctx, i) })
	}
	talking, quiet := context.WithCancel(ctx)
	task.Background("progress", func() { l.progress(talking) })
	err = cells.Wait()
	quiet()
	l.r.finish(l.elapsed())
	return l.r, errors.Join(err, l.journal.close(), l.writeReport())
}

// known takes what an earlier process has done.
func (l *loop) known(e entry) {
	if e.Seed >= l.o.seed && e.Seed < l.o.seed+uint64(l.o.runs) {
		l.r.add(e.Tally)
	}
}

// elapsed is how long the work has taken.
func (l *loop) elapsed() time.Duration { return l.journal.elapsed + time.Since(l.begun) }

const progressEvery = 15 * time.Second

func (l *loop) progress(ctx context.Context) {
	for {
		program.Rest(ctx, progressEvery)
		if ctx.Err() != nil {
			return
		}
		program.Say("%s", l.r.progress(l.elapsed()))
	}
}

// writeReport leaves the report below the directory of kept runs, whatever is printed.
func (l *loop) writeReport() error {
	f, err := os.Create(filepath.Join(l.o.out, "report.json"))
	if err != nil {
		return err
	}
	return errors.Join(l.r.json(f), f.Close())
}

// seed returns the next seed of wide worlds or of others, as long as there is time.
func (l *loop) seed(wide bool) (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop || time.Since(l.begun) > l.o.limit {
		return 0, false
	}
	ofKind := func(seed uint64) bool { return plan.IsWide(seed, l.o.wideEvery) == wide }
	if i := slices.IndexFunc(l.again, ofKind); i >= 0 {
		seed := l.again[i]
		l.again = slices.Delete(l.again, i, i+1)
		return seed, true
	}
	for l.next[wide] < l.o.runs {
		l.next[wide]++
		if seed := l.o.seed + uint64(l.next[wide]-1); ofKind(seed) && !l.journal.done[seed] {
			return seed, true
		}
	}
	return 0, false
}

// widePart is of how many workers one begins with the wide worlds: their runs take about ten times as long as others,
// and about as many are a tenth.
const widePart = 4

// begin returns the first seed of a cell, and reports whether its world is wide.
func (l *loop) begin(worker int) (seed uint64, wide, more bool) {
	wide = worker%widePart == 1
	if seed, more = l.seed(wide); !more {
		wide = !wide
		seed, more = l.seed(wide)
	}
	return seed, wide, more
}

// tries is how often a run is begun that the harness fails to do.
const tries = 3

// failed puts back a run without a result.
func (l *loop) failed(seed uint64, err error) {
	l.r.harness(err)
	program.Say("the harness failed: %v", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tried[seed]++; l.tried[seed] < tries {
		l.again = append(l.again, seed)
		return
	}
	l.r.lost(seed)
}

// work runs on one cell after the other. A harness that fails costs the cell; several in a row end the work.
func (l *loop) work(ctx context.Context, i int) error {
	const patience = 5
	failed := 0
	for n := 0; ctx.Err() == nil; n++ {
		more, err := l.useCell(ctx, i, i+n)
		if err == nil && !more {
			return nil
		}
		if err == nil {
			failed = 0
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if failed++; failed == patience {
			return fmt.Errorf("the harness failed %d times in a row: %w", failed, err)
		}
	}
	return nil
}

// controllers of the nth cell.
func (l *loop) controllers(n int) int {
	if l.o.controllers > 0 {
		return l.o.controllers
	}
	return 1 + n%3
}

// steppable reports whether the nth cell has clocks that can be stepped: half of them, or all where the others are
// none.
func (l *loop) steppable(n int) bool {
	return l.o.Stepped != "" && (n/3%2 == 1 || l.o.Stepped == l.o.Bin)
}

// useCell makes a cell and breaks it until it is worn out.
func (l *loop) useCell(ctx context.Context, worker, n int) (more bool, err error) {
	seed, wide, more := l.begin(worker)
	if !more {
		return false, nil
	}
	o := l.o
	o.Standby, o.Wide = trial.WithStandby(o.Only, n) && !wide, wide
	c, err := trial.New(ctx, o.Options, l.controllers(n), l.steppable(n) && !wide)
	if err != nil {
		err = fmt.Errorf("seed %d: %w", seed, err)
		l.failed(seed, err)
		return true, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for n := 1; more; n++ {
		ok, err := l.judge(ctx, c, seed)
		if err != nil {
			l.failed(seed, err)
		}
		if err != nil || !ok || n == l.o.reuse {
			return true, err
		}
		seed, more = l.seed(wide)
	}
	return true, nil // of the other kind there may be more
}

// judge does one run and keeps it if anything is wrong. ok is false when the cell should not be used again.
func (l *loop) judge(ctx context.Context, c *trial.Trial, seed uint64) (ok bool, err error) {
	begun := time.Now()
	h, settling, err := c.Run(ctx, seed)
	if err != nil {
		return false, errors.Join(fmt.Errorf("seed %d: %w", seed, err), l.keepLogs(c, seed))
	}
	found := check.Judge(h)
	t := count(h, found, time.Since(begun), settling)
	l.r.add(t)
	if len(found) > 0 {
		l.violated(seed, found)
	}
	if len(found) > 0 || l.o.keep {
		err = errors.Join(l.keepHistory(h, found), l.keepLogs(c, seed))
	}
	return len(found) == 0 && !c.Spent(), errors.Join(err, l.note(entry{seed, l.elapsed(), t}))
}

func (l *loop) note(e entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.journal.add(e)
}

// violated logs the violations, and ends the work where one is enough.
func (l *loop) violated(seed uint64, found []check.Violation) {
	program.Say("seed %d: %d violations, the first: %v", seed, len(found), found[0])
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop = l.stop || l.o.Planted != "" || !l.o.keepGoing
}

func (l *loop) place(seed uint64) string { return filepath.Join(l.o.out, fmt.Sprint(seed)) }

// keepHistory writes the history and its violations.
func (l *loop) keepHistory(h check.History, found []check.Violation) (err error) {
	dir := l.place(h.Header.Seed)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		return err
	}
	if err := errors.Join(h.Write(f), f.Close()); err != nil {
		return err
	}
	text := fmt.Sprintf("seed %d, %d controllers, %d agents, %v\n\n", h.Header.Seed, h.Header.Controllers, h.Header.Agents,
		h.Header.At.Format(time.RFC3339))
	for _, v := range found {
		text += v.String() + "\n"
	}
	clocks := ""
	if h.Header.Steppable {
		clocks = " --bin " + l.o.Stepped
	}
	if h.Header.Wide {
		clocks = " --wide-every 1"
	}
	if h.Header.Older {
		clocks += " --old " + l.o.Old
	}
	text += fmt.Sprintf("\nrun it again:     make chaos CHAOS_FLAGS='--seed %d --runs 1 --controllers %d --agents %d%s'\n"+
		"judge it again:   make chaos CHAOS_FLAGS='--rejudge %s'\n", h.Header.Seed, h.Header.Controllers, h.Header.Agents,
		clocks, f.Name())
	return os.WriteFile(filepath.Join(dir, "violations.txt"), []byte(text), 0o644)
}

// The largest number of kept runs with their logs, and the kept bytes of each log before the run.
const (
	maxKept = 50
	before  = 1 << 20
)

// keepLogs copies the logs of the cell's processes, from a while before the run.
func (l *loop) keepLogs(c *trial.Trial, seed uint64) error {
	l.mu.Lock()
	l.kept++
	enough := l.kept > maxKept
	l.mu.Unlock()
	if enough {
		return nil
	}
	dir := l.place(seed)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, p := range c.Programs() {
		errs = append(errs, copyFile(p.Log.Name(), filepath.Join(dir, p.Name+".log"), p.Read-before),
			copyFile(c.Path(p.Name+"-clone.log"), filepath.Join(dir, p.Name+"-clone.log"), 0))
	}
	return errors.Join(append(errs,
		copyFile(c.Path("postgres/postgres.log"), filepath.Join(dir, "postgres.log"), 0),
		copyFile(c.Path("effects"), filepath.Join(dir, "effects.jsonl"), 0))...)
}

func copyFile(from, to string, offset int64) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := in.Seek(max(offset, 0), io.SeekStart); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
