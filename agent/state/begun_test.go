package state_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/state"
)

// TestBegunTellsAnOldCopy: a memory in which a command was only received is an old copy in the boot in which it was
// started, and in no other.
func TestBegunTellsAnOldCopy(t *testing.T) {
	t.Parallel()
	run, copied := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	open := func(dir, boot string) (*state.Begun, error) {
		s, err := state.Open(t.Context(), state.Config{Dir: dir})
		must(t, err)
		t.Cleanup(func() { must(t, s.Close()) })
		return state.OpenBegun(t.Context(), s, run, boot, slog.New(slog.DiscardHandler))
	}
	dir := t.TempDir()
	now, ctx := time.Now(), t.Context()
	b, err := open(dir, "boot-1")
	must(t, err)
	for _, id := range []string{"started", "taken back", "settled", "../../received"} {
		_, _, err := b.Receive(ctx, state.Command{ID: id, TargetID: id, ReceivedAt: now})
		must(t, err)
	}
	must(t, os.CopyFS(copied, os.DirFS(dir)))
	must(t, b.Start(ctx, "taken back", nil, nil, now))
	must(t, b.Unstart(ctx, "taken back"))
	must(t, b.Start(ctx, "settled", nil, nil, now))
	must(t, b.Finish(ctx, "settled", nil, now))
	must(t, b.Settle(ctx, "settled"))
	early, err := open(copied, "boot-1")
	if err != nil {
		t.Errorf("nothing is begun, and yet: %v", err)
	}
	must(t, b.Start(ctx, "started", nil, nil, now))
	if err := early.Start(ctx, "started", nil, nil, now); !errors.Is(err, state.ErrRolledBack) {
		t.Errorf("a copy that runs beside its original starts the same command: %v", err)
	}
	must(t, early.Store.Unstart(ctx, "started"))
	if _, err := open(dir, "boot-1"); err != nil {
		t.Errorf("the memory itself: %v", err)
	}
	if _, err := open(copied, "boot-1"); !errors.Is(err, state.ErrRolledBack) {
		t.Errorf("the copy: %v", err)
	}
	if _, err := open(copied, "boot-2"); err != nil {
		t.Errorf("the copy in another boot: %v", err)
	}
	if boots, err := filepath.Glob(filepath.Join(run, "begun", "*")); err != nil || len(boots) != 1 {
		t.Errorf("boots kept: %v, %v", boots, err)
	}
}

// TestBegunGoesOnWithoutItsDirectory: a machine whose /run is broken or full can still be rebooted.
func TestBegunGoesOnWithoutItsDirectory(t *testing.T) {
	t.Parallel()
	s, err := state.Open(t.Context(), state.Config{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	for _, run := range []string{"", "/dev/null/run"} {
		b, err := state.OpenBegun(t.Context(), s, run, "boot", slog.New(slog.DiscardHandler))
		must(t, err)
		_, _, err = b.Receive(t.Context(), state.Command{ID: "of " + run, TargetID: "m", ReceivedAt: time.Now()})
		must(t, err)
		must(t, b.Start(t.Context(), "of "+run, nil, nil, time.Now()))
	}
}

// TestAStartThatIsNotForgottenIsNotTakenBack: the command would otherwise look, in this boot, like one of another copy.
// Settling goes on, as nothing more comes of the command.
func TestAStartThatIsNotForgottenIsNotTakenBack(t *testing.T) {
	t.Parallel()
	run, ctx, now := t.TempDir(), t.Context(), time.Now()
	s := open(t, state.Config{InMemory: true})
	var logged bytes.Buffer
	b, err := state.OpenBegun(ctx, s, run, "boot-1", slog.New(slog.NewTextHandler(&logged, nil)))
	must(t, err)
	receive(t, s, "c")
	must(t, b.Start(ctx, "c", []byte("{}"), nil, now))
	kept, err := filepath.Glob(filepath.Join(run, "begun", "boot-1", "*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept of the start: %v, %v", kept, err)
	}
	if err := b.Start(ctx, "c", nil, nil, now); !errors.Is(err, state.ErrConflict) {
		t.Errorf("started twice: %v", err)
	}
	must(t, os.Remove(kept[0]))
	must(t, os.MkdirAll(filepath.Join(kept[0], "in the way"), 0o700))
	if err := b.Unstart(ctx, "c"); err == nil {
		t.Error("taken back, and the record of the start is there")
	}
	if c, _, err := b.Command(ctx, "c"); err != nil || c.State != state.Started {
		t.Errorf("the command is %s, %v", c.State, err)
	}
	if err := b.Settle(ctx, "c"); err != nil || logged.Len() == 0 {
		t.Errorf("settled with %v, and logged %q", err, logged.String())
	}
	must(t, os.RemoveAll(kept[0]))
	must(t, b.Unstart(ctx, "c"))
	must(t, b.Start(ctx, "c", []byte("{}"), nil, now))
	must(t, b.Finish(ctx, "c", []byte("r"), now))
	s.Fence()
	if err := b.Settle(ctx, "c"); !errors.Is(err, state.ErrFenced) {
		t.Errorf("a fenced store settled: %v", err)
	}
	if _, err := os.Stat(kept[0]); err != nil {
		t.Errorf("the start of a command that is not settled is forgotten: %v", err)
	}
	if _, err := state.OpenBegun(ctx, s, run, "boot-1", slog.New(slog.DiscardHandler)); !errors.Is(err, state.ErrFenced) {
		t.Errorf("opened on a memory that cannot be read: %v", err)
	}
}

// TestNothingIsKeptWithoutABootOrADirectory: a boot without an id could not be told from another one, and no file is
// left where the agent happens to run.
func TestNothingIsKeptWithoutABootOrADirectory(t *testing.T) {
	here, run := t.TempDir(), t.TempDir()
	t.Chdir(here)
	for boot, dir := range map[string]string{"": run, "boot-1": ""} {
		s := open(t, state.Config{InMemory: true})
		b, err := state.OpenBegun(t.Context(), s, dir, boot, slog.New(slog.DiscardHandler))
		must(t, err)
		receive(t, s, "c")
		must(t, b.Start(t.Context(), "c", nil, nil, t0))
		must(t, b.Unstart(t.Context(), "c"))
		for _, dir := range []string{here, run} {
			if kept, err := os.ReadDir(dir); err != nil || len(kept) != 0 {
				t.Errorf("kept of boot %q: %v, %v", boot, kept, err)
			}
		}
	}
}
