package rollback

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/internal/clock"
)

// TestHalfWrittenFilesAreRemoved kills a process that writes the record of a change, until a file before its rename is
// left. The next look must remove that file.
func TestHalfWrittenFilesAreRemoved(t *testing.T) {
	const variable = "INGOT_WRITE_GUARDS"
	if root := os.Getenv(variable); root != "" {
		h := newBootedHost(root)
		for {
			hosttest.Must(t, h.Guard(t.Context(), Guard{CommandID: "c1", Deadline: clock.Boottime() + time.Hour}))
		}
	}
	t.Parallel()
	root := t.TempDir()
	h := newBootedHost(root)
	for tries := 0; len(h.Interfaces.HalfWritten()) == 0; tries++ {
		if tries == 500 {
			t.Fatal("no kill came between the writing of a file and its renaming")
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), variable+"="+root)
		hosttest.Must(t, cmd.Start())
		for h.Interfaces.HalfWritten() == nil {
			<-time.After(time.Millisecond)
		}
		hosttest.Must(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	}
	if done, err := h.RollBackPending(t.Context(), false); done || err != nil {
		t.Errorf("before the deadline: %t, %v", done, err)
	}
	if _, err := h.AbandonGuard(t.Context()); err != nil {
		t.Error(err)
	}
	if done, err := h.RollBackPending(t.Context(), false); done || err != nil {
		t.Errorf("with nothing pending: %t, %v", done, err)
	}
	if left := h.Interfaces.HalfWritten(); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
}
