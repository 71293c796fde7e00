package disks

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/mirror"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
)

const (
	mirrorDisk = 40 << 20
	fileSystem = 16 << 20 // of the mirror, right behind its first MiB
)

// twoDisks hold one ext4 file system each, the same, and differ in size.
func twoDisks(t *testing.T, dir string) (args []string) {
	t.Helper()
	ext4 := emptyDisk(t, filepath.Join(dir, "ext4"), fileSystem)
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", ext4).CombinedOutput(); err != nil {
		t.Fatalf("mke2fs: %v: %s", err, out)
	}
	content, err := os.ReadFile(ext4)
	hosttest.Must(t, err)
	for i, name := range []string{"a", "b"} {
		path := emptyDisk(t, filepath.Join(dir, name), mirrorDisk+int64(i)<<20)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		hosttest.Must(t, err)
		_, err = f.WriteAt(content, 1<<20)
		hosttest.Must(t, errors.Join(err, f.Close()))
		args = append(args, nvme(path)...)
	}
	return args
}

// TestTheKernelWritesBothDisksOfAMirror: a change through a mounted file system is on both. The array of a killed
// process is stopped before the disks are chosen again.
func TestTheKernelWritesBothDisksOfAMirror(t *testing.T) {
	t.Parallel()
	if !inVM(t, func(dir string) []string { return twoDisks(t, dir) }) {
		return
	}
	hosttest.Must(t, unix.Mount("", "/sys", "", unix.MS_REMOUNT, ""))
	h := installerOf("/", Open)
	p, err := h.ChoosePair("", "size>=1MiB", nil)
	hosttest.Must(t, err)
	m, err := h.openPair(p)
	hosttest.Must(t, err)
	hosttest.Must(t, m.Clear())
	same := func() {
		t.Helper()
		if _, err := m.ReadAt(block.Buffer(int(m.Size())), 0); err != nil {
			t.Error(err)
		}
	}
	same()
	want := bytes.Repeat([]byte("on both "), 100_000)
	hosttest.Must(t, h.fillPartition(t.Context(), *m, 1<<20, fileSystem, map[string][]byte{"a/file": want}))
	same()
	for _, d := range m.halves { // each by itself has the file
		hosttest.Must(t, d.Part(t.Context(), 1<<20, fileSystem, func(device string) error {
			return mounted("ext4", device, true, func(dir string) error {
				return compareFiles(dir, map[string][]byte{"a/file": want})
			})
		}))
	}
	hosttest.Must(t, m.Label(time.Now()))
	hosttest.Must(t, m.Check())
	hosttest.Must(t, m.Close())
	// The maker of an array may end in any way, and leave it.
	func() {
		defer func() { _ = recover() }() // as it was thrown
		hosttest.Must(t, mirror.With(t.Context(), m.paths, func(string) error { panic("the agent is killed") }))
	}()
	all, err := h.Disks()
	hosttest.Must(t, err)
	if len(all) != 2 || len(all[0].InUse) == 0 {
		t.Errorf("an array is left, and the disks are not in use: %+v", all)
	}
	if one, err := h.ChooseDisk("serial=a", nil); err != nil || len(one.InUse) > 0 {
		t.Errorf("%+v, %v", one, err)
	}
}
