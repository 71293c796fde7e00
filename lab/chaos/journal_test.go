package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/trial"
)

func TestWorkThatWasCutShortGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, err := openJournal(dir, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := check.History{Faults: []check.Fault{{Kind: "kill-agent"}},
		Calls: []check.Call{{Method: check.Start, Outcome: check.OK}}}
	found := []check.Violation{{Rule: check.RuleOnce}}
	for seed := range uint64(3) {
		h.Header.Seed = seed
		if err := j.add(entry{seed, time.Duration(seed+1) * time.Minute, count(h, found, time.Second, 0)}); err != nil {
			t.Fatal(err)
		}
		found = nil
	}
	// The harness was killed in the middle of a line.
	if _, err := j.file.WriteString("\n{\"seed\":4,\"tal"); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	l := &loop{o: options{seed: 1, runs: 4}, begun: time.Now(), r: newReport(options{runs: 4}), tried: map[uint64]int{},
		next: map[bool]int{}}
	l.o.limit = time.Hour
	if l.journal, err = openJournal(dir, true, l.known); err != nil {
		t.Fatal(err)
	}
	if l.r.Runs != 2 || l.r.Faults["kill-agent"] != 2 || len(l.r.Violations) != 0 || l.journal.elapsed != 3*time.Minute {
		t.Errorf("resumed with %d runs, faults %v, violations %v, after %v", l.r.Runs, l.r.Faults, l.r.Violations,
			l.journal.elapsed)
	}
	var left []uint64
	for seed, more := l.seed(false); more; seed, more = l.seed(false) {
		left = append(left, seed)
	}
	if len(left) != 2 || left[0] != 3 || left[1] != 4 {
		t.Errorf("left are %v, want 3 and 4", left)
	}
	if err := l.note(entry{3, time.Minute, newTally()}); err != nil {
		t.Fatal(err)
	}
	if err := l.journal.close(); err != nil {
		t.Fatal(err)
	}
	again, err := openJournal(dir, true, func(entry) {})
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	if !again.done[3] || again.done[4] {
		t.Errorf("done are %v", again.done)
	}
}

func TestARunThatTheHarnessFailsIsDoneAgainAndThenLost(t *testing.T) {
	t.Parallel()
	l := &loop{o: options{runs: 1, seed: 7, limit: time.Hour}, begun: time.Now(), r: newReport(options{runs: 1}),
		tried: map[uint64]int{}, next: map[bool]int{}, journal: &journal{}}
	for n := range tries {
		seed, more := l.seed(false)
		if !more || seed != 7 {
			t.Fatalf("try %d: seed %d, %v", n, seed, more)
		}
		l.failed(seed, os.ErrDeadlineExceeded)
	}
	if _, more := l.seed(false); more || len(l.r.Lost) != 1 || l.r.verdict(l.o) == nil {
		t.Errorf("lost are %v, more %v, verdict %v", l.r.Lost, more, l.r.verdict(l.o))
	}
}

func TestSweepTakesOnlyWhatNobodyHas(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	mine, theirs := filepath.Join(parent, trial.CellPrefix+"mine"), filepath.Join(parent, trial.CellPrefix+"left")
	for _, dir := range []string{mine, theirs} {
		if err := os.MkdirAll(filepath.Join(dir, "world"), 0o755); err != nil {
			t.Fatal(err)
		}
		lock, err := trial.Claim(dir)
		if err != nil {
			t.Fatal(err)
		}
		if dir == theirs {
			err = lock.Close()
		} else {
			defer lock.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := trial.Sweep(parent); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(theirs); !os.IsNotExist(err) {
		t.Errorf("what a killed run has left is still there: %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("a cell that somebody has is gone: %v", err)
	}
}

// TestOneRunInTenIsWide: each kind of world has its own seeds, and all are handed out once. A worker that has no more
// of its kind goes on with the other.
func TestOneRunInTenIsWide(t *testing.T) {
	t.Parallel()
	l := &loop{o: options{runs: 40, seed: 1, limit: time.Hour, wideEvery: 10}, begun: time.Now(),
		r: newReport(options{runs: 40}), tried: map[uint64]int{}, next: map[bool]int{}, journal: &journal{}}
	given, wides := map[uint64]bool{}, 0
	for worker := 0; ; worker++ {
		seed, wide, more := l.begin(worker)
		if !more {
			break
		}
		if given[seed] || wide != (seed%10 == 9) {
			t.Errorf("seed %d, wide %v, again %v", seed, wide, given[seed])
		}
		given[seed] = true
		if wide {
			wides++
		}
	}
	if len(given) != 40 || wides != 4 {
		t.Errorf("%d seeds, %d of them wide", len(given), wides)
	}
}
