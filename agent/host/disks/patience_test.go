package disks

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ingot-metal/ingot/internal/disk"
)

// lateMachine shows sysfs of a machine whose disks come one by one, as SAS controllers bring them (staggered spin-up).
type lateMachine struct {
	t    *testing.T
	root string
}

func newLateMachine(t *testing.T) lateMachine {
	t.Helper()
	m := lateMachine{t, t.TempDir()}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	m.write("proc/self/status", string(status))
	m.write("proc/self/mountinfo", "")
	m.write("sys/block/x", "")
	return m
}

func (m lateMachine) write(name, content string) {
	path := filepath.Join(m.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		m.t.Error(err)
	}
}

// bring shows a disk at once: its directory is filled elsewhere and renamed.
func (m lateMachine) bring(name, serial string) {
	m.write("new/"+name+"/size", "2097152")
	m.write("new/"+name+"/device/vpd_pg80", "\x00\x80\x00\x01"+serial)
	if err := os.Rename(filepath.Join(m.root, "new", name), filepath.Join(m.root, "sys/block", name)); err != nil {
		m.t.Error(err)
	}
}

// TestTheInstallerWaitsForLateDisks: a rule that names a disk waits for it and takes no other. A rule that takes any
// disk waits until no more appear.
func TestTheInstallerWaitsForLateDisks(t *testing.T) {
	t.Parallel()
	const soon = 400 * time.Millisecond
	for name, c := range map[string]struct {
		rule      string
		protected []string
		late      string // the serial number of the disk that comes late; "": none does
		want      string // "": no unique match
	}{
		"the right one is late":                 {"serial=B", nil, "B", "B"},
		"the right one is missing":              {"serial=B", nil, "C", ""},
		"a size that the late one fits too":     {"size>=1GiB", nil, "B", ""},
		"no rule, and another comes":            {"", nil, "B", ""},
		"no rule, and the protected comes":      {"", []string{"serial=B"}, "B", "A"},
		"the only free one is late":             {"", []string{"serial=A"}, "B", "B"},
		"a rule that names the one that's here": {"serial=A", nil, "", "A"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newLateMachine(t)
				m.bring("sda", "A")
				if c.late != "" {
					timer := time.AfterFunc(soon, func() { m.bring("sdb", c.late) })
					defer timer.Stop()
				}
				h := installerOf(m.root, Open)
				h.patience = Patience{Late: 4 * soon, Settle: 2 * soon}
				got, err := h.ChooseDisk(c.rule, c.protected)
				var no *disk.NoUniqueMatch
				if got.Serial != c.want || c.want == "" && !errors.As(err, &no) {
					t.Errorf("%v, %v", got, err)
				}
				// The second choice does not wait again.
				begun := time.Now()
				if again, err := h.ChooseDisk(c.rule, c.protected); c.want != "" &&
					(err != nil || again.Serial != c.want || time.Since(begun) > soon) {
					t.Errorf("again: %v, %v after %s", again, err, time.Since(begun))
				}
			})
		})
	}
}
