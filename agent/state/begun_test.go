package state_test

import (
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
