package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// childVariable makes this test program an agent that does one thing and may be killed on the way.
const childVariable = "INGOT_TEST_SIM_CHILD"

func child() int {
	dir, script, _ := strings.Cut(os.Getenv(childVariable), "|")
	h, err := New(Config{Dir: dir, MachineID: "m-1", Script: script, Delay: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return 3
	}
	if err := h.SetHostname(context.Background(), effect.Cause{CommandID: "name"}, "n"); err != nil {
		fmt.Println(err)
		return 3
	}
	if err := h.Reboot(context.Background(), effect.Cause{CommandID: "c"}, boot.RebootForced); err != nil {
		fmt.Println(err)
		return 3
	}
	<-h.Down()
	return 0
}

func runChild(t *testing.T, dir, script string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+dir+"|"+script)
	out, err := cmd.CombinedOutput()
	t.Logf("child: %v %s", err, out)
	return err
}

func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func TestKilledProcessesLeaveATruthfulCount(t *testing.T) {
	t.Parallel()
	for script, effects := range map[string]int{"": 1, "reboot:crash-before": 0, "reboot:crash-after": 1} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := runChild(t, dir, script); killed(err) != (script != "") || (script == "" && err != nil) {
				t.Fatalf("child ended with %v", err)
			}
			// The process is gone; what it was promised happens all the same.
			w, err := OpenWorld(WorldConfig{Dir: dir, Clock: clock.NewFake(time.Now().Add(time.Hour))})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Settle(); err != nil {
				t.Fatal(err)
			}
			records, err := ReadJournal(dir)
			if err != nil {
				t.Fatal(err)
			}
			counts := CountByCommand(records)
			if counts["c"] != effects || counts["name"] != 1 || CountByCommand(records, KindReboot)["name"] != 0 {
				t.Errorf("counts %v, want %d reboots", counts, effects)
			}
			st, err := w.State("m-1")
			if err != nil || st.Asked[KindReboot] != 1 {
				t.Errorf("asked %v, %v", st.Asked, err)
			}
		})
	}
}

// A process that dies between state and journal owes records; the next process writes them, once.
func TestOwedRecordsArePaidOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	h := f.host()
	if err := h.SetHostname(t.Context(), cause, "new"); err != nil {
		t.Fatal(err)
	}
	path := stateFile(f.dir, "m-1")
	journal := filepath.Join(f.dir, JournalName)
	whole, err := readJournalFile(journal)
	if err != nil || len(whole) != 2 {
		t.Fatalf("journal %+v, %v", whole, err)
	}
	for written := range 3 { // of the two records, this many reached the journal
		st, _, err := readState(path)
		if err != nil {
			t.Fatal(err)
		}
		st.Outbox = whole
		if err := writeState(path, st); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(journal); err != nil {
			t.Fatal(err)
		}
		if err := appendJournal(journal, whole[:written], true); err != nil {
			t.Fatal(err)
		}
		if f.count() != 1 {
			t.Errorf("%d written: %d effects before anybody paid", written, f.count())
		}
		for range 2 {
			if _, err := f.world().State("m-1"); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := readJournalFile(journal); err != nil || len(got) != 2 {
			t.Errorf("%d written: journal %+v, %v", written, got, err)
		}
	}
}

func TestManyAtOnceOnOneMachine(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	const callers, each = 8, 25
	g, _ := task.New(t.Context())
	for range callers {
		m := f.world().Machine("m-1")
		g.Go("caller", func(ctx context.Context) error {
			for range each {
				if err := m.Reboot(ctx, cause, boot.RebootForced); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	st, err := f.world().State("m-1")
	if err != nil || st.Downs != callers*each || f.count() != callers*each {
		t.Errorf("%d reboots, machine went down %d times, journal counts %d, %v", callers*each, st.Downs, f.count(), err)
	}
}
