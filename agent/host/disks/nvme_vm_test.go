package disks

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/internal/disk"
)

// withNVMe runs the calling test again in a machine with two NVMe disks at one controller and one at another. It
// returns true in there; the caller returns when it is false.
func withNVMe(t *testing.T) bool {
	t.Helper()
	return inVM(t, func(dir string) []string {
		// Bit 2 of the warnings: the reliability of the subsystem is degraded.
		args := []string{"-device", "nvme,id=c0,serial=SHARED", "-device", "nvme,id=c1,serial=ALONE,smart_critical_warning=4"}
		for name, on := range map[string]string{"a": "bus=c0,nsid=1", "b": "bus=c0,nsid=2", "c": "bus=c1,nsid=1"} {
			args = append(args, "-drive", "if=none,format=raw,discard=unmap,id="+name+",file="+
				emptyDisk(t, filepath.Join(dir, name), 32<<20), "-device", "nvme-ns,drive="+name+","+on)
		}
		return args
	})
}

// QEMU's controller has Format NVM and no sanitize, so that auto comes to the format, which is for one namespace.
func TestNVMeIsFormatted(t *testing.T) {
	t.Parallel()
	if !withNVMe(t) {
		return
	}
	h := installerOf("/", Open)
	all, err := h.Disks()
	hosttest.Must(t, err)
	if len(all) != 3 {
		t.Fatalf("disks: %v", all)
	}
	for _, d := range all {
		put(t, d.Path)
	}
	for _, c := range []struct {
		name string
		why  string
	}{{"nvme1n1", "the controller has no sanitize"}, {"nvme0n2", "the controller has no sanitize"}} {
		got, err := h.EraseDisk(
			t.Context(),
			effect.Cause{},
			disk.Ref{ID: idOf(t, h, c.name)},
			erase.Auto,
			func(int, string) {},
		)
		if err != nil || got.Method != erase.NVMeFormat || got.Detail != "user data erase" ||
			!strings.Contains(strings.Join(got.Why, ";"), c.why) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		t.Logf("%s: %+v", c.name, got)
	}
	if first(t, "/dev/nvme0n1") == 0 || first(t, "/dev/nvme0n2") != 0 || first(t, "/dev/nvme1n1") != 0 {
		t.Errorf("first bytes: %x, %x, %x", first(t, "/dev/nvme0n1"), first(t, "/dev/nvme0n2"), first(t, "/dev/nvme1n1"))
	}
	if _, err := h.EraseDisk(t.Context(), effect.Cause{}, disk.Ref{ID: idOf(t, h, "nvme1n1")}, erase.NVMeSanitize,
		func(int, string) {}); !errors.Is(err, erase.ErrUnsupported) {
		t.Errorf("sanitize: %v", err)
	}
}

// TestNVMeSaysHowItIs: QEMU's controllers answer the health log as the specification has it; one reports degraded
// reliability.
func TestNVMeSaysHowItIs(t *testing.T) {
	t.Parallel()
	if !withNVMe(t) {
		return
	}
	h := installerOf("/", Open)
	all, err := h.Disks()
	hosttest.Must(t, err)
	failing := 0
	for _, d := range all {
		got, err := h.SMART(d.Path)
		if err != nil || got.PercentUsed != 0 {
			t.Errorf("%s: %+v, %v", d.Path, got, err)
		}
		if got.Failing {
			failing++
			if d.Serial != "ALONE" || !strings.Contains(got.Why, "reliability is degraded") {
				t.Errorf("%s, %s: %+v", d.Path, d.Serial, got)
			}
		}
		t.Logf("%s: %+v", d.Path, got)
	}
	if len(all) != 3 || failing != 1 {
		t.Errorf("%d of %d disks are failing", failing, len(all))
	}
}

// idOf returns the ID of a disk by its name: two namespaces of a controller have one serial number.
func idOf(t *testing.T, h *Storage, name string) string {
	t.Helper()
	d, err := h.ChooseDisk("path=/dev/"+name, nil)
	hosttest.Must(t, err)
	return d.ID()
}

func put(t *testing.T, path string) {
	t.Helper()
	b := block.Buffer(32 << 20)
	rand.NewChaCha8([32]byte{5}).Read(b)
	d, err := block.Open(path, true)
	hosttest.Must(t, err)
	_, err = d.WriteAt(b, 0)
	hosttest.Must(t, errors.Join(err, d.Flush(), d.Close()))
}

// first returns the first byte of a disk that is not zero, or 0.
func first(t *testing.T, path string) byte {
	t.Helper()
	b := block.Buffer(1 << 20)
	d, err := block.Open(path, false)
	hosttest.Must(t, err)
	defer d.Close()
	_, err = d.ReadAt(b, 0)
	hosttest.Must(t, err)
	if i := bytes.IndexFunc(b, func(r rune) bool { return r != 0 }); i >= 0 {
		return max(b[i], 1)
	}
	return 0
}
