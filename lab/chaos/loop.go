package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// loop hands seeds to cells.
type loop struct {
	o     options
	begun time.Time

	mu   sync.Mutex
	next int
	stop bool
	r    *report
}

// breakThings does all runs.
func breakThings(ctx context.Context, o options) (*report, error) {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return nil, err
	}
	l := &loop{o: o, begun: time.Now(), r: newReport(o)}
	group, _ := task.New(ctx)
	for i := range min(o.cells, o.runs) {
		group.Go(fmt.Sprintf("cell %d", i), func(ctx context.Context) error { return l.work(ctx, i) })
	}
	err := group.Wait()
	l.r.Took = time.Since(l.begun)
	return l.r, err
}

// seed gives the next one, as long as there is time.
func (l *loop) seed() (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next >= l.o.runs || l.stop || time.Since(l.begun) > l.o.limit {
		return 0, false
	}
	l.next++
	return l.o.seed + uint64(l.next-1), true
}

// work runs on one cell after the other. A harness that fails costs the run and the cell; several in a row end the work.
func (l *loop) work(ctx context.Context, i int) error {
	const patience = 3
	failed := 0
	for n := 0; ctx.Err() == nil; n++ {
		more, err := l.useCell(ctx, l.controllers(i+n))
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
		failed++
		l.r.harness(err)
		say("the harness failed: %v", err)
		if failed == patience {
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

// useCell makes a cell and breaks it until it is worn out.
func (l *loop) useCell(ctx context.Context, controllers int) (more bool, err error) {
	seed, more := l.seed()
	if !more {
		return false, nil
	}
	c, err := newCell(ctx, l.o, controllers)
	if err != nil {
		return true, fmt.Errorf("seed %d: %w", seed, err)
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for n := 1; more; n++ {
		ok, err := l.judge(ctx, c, seed)
		if err != nil || !ok || n == l.o.reuse {
			return true, err
		}
		seed, more = l.seed()
	}
	return false, nil
}

// judge does one run and keeps it if anything is wrong. ok is false when the cell should not be used again.
func (l *loop) judge(ctx context.Context, c *cell, seed uint64) (ok bool, err error) {
	begun := time.Now()
	h, err := c.run(ctx, seed)
	if err != nil {
		return false, errors.Join(fmt.Errorf("seed %d: %w", seed, err), l.keepLogs(c, seed))
	}
	found := check.Judge(h)
	l.r.add(h, found, time.Since(begun))
	if len(found) == 0 && !l.o.keep {
		return true, nil
	}
	if len(found) > 0 {
		say("seed %d: %d violations, the first: %v", seed, len(found), found[0])
		l.mu.Lock()
		l.stop = l.stop || l.o.planted != "" || !l.o.keepGoing
		l.mu.Unlock()
	}
	return len(found) == 0, errors.Join(l.keepHistory(h, found), l.keepLogs(c, seed))
}

func (l *loop) place(seed uint64) string { return filepath.Join(l.o.out, fmt.Sprint(seed)) }

// keepHistory writes the history and what is wrong with it.
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
	text := fmt.Sprintf("seed %d, %d controllers, %d agents, %v\n\n", h.Header.Seed, h.Header.Controllers, h.Header.Agents, h.Header.At.Format(time.RFC3339))
	for _, v := range found {
		text += v.String() + "\n"
	}
	text += fmt.Sprintf("\nrun it again:     make chaos CHAOS_FLAGS='--seed %d --runs 1 --controllers %d --agents %d'\n"+
		"judge it again:   make chaos CHAOS_FLAGS='--rejudge %s'\n", h.Header.Seed, h.Header.Controllers, h.Header.Agents, f.Name())
	return os.WriteFile(filepath.Join(dir, "violations.txt"), []byte(text), 0o644)
}

// keepLogs copies the logs of the cell's processes.
func (l *loop) keepLogs(c *cell, seed uint64) error {
	dir := l.place(seed)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, p := range c.programs() {
		errs = append(errs, copyFile(p.log.Name(), filepath.Join(dir, p.name+".log")))
	}
	return errors.Join(append(errs, copyFile(c.path("effects"), filepath.Join(dir, "effects.jsonl")))...)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// rejudge judges a history that was kept.
func rejudge(path string, w io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h, err := check.Read(f)
	if err != nil {
		return err
	}
	found := check.Judge(h)
	for _, v := range found {
		fmt.Fprintln(w, v)
	}
	fmt.Fprintf(w, "seed %d: %d violations\n", h.Header.Seed, len(found))
	if len(found) > 0 {
		return errors.New("the history breaks a promise")
	}
	return nil
}
