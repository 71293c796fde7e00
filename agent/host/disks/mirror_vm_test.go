package disks

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// inVMWith runs the calling test again in a machine with the disks of these files, whose serial numbers are the files'
// names. It returns true in there.
func inVMWith(t *testing.T, files func() []string) bool {
	t.Helper()
	if os.Getenv(hosttest.VMVariable) == "1" {
		return true
	}
	initrd := filepath.Join(t.TempDir(), "initrd")
	args := []string{
		"-accel", "tcg", "-machine", "q35", "-m", "768", "-cpu", "qemu64,+rdrand,+ssse3,+sse4.1,+sse4.2", "-display", "none",
		"-no-reboot", "-serial", "stdio", "-nodefaults", "-kernel", hosttest.WriteInitrd(t, initrd, "", hosttest.VMTime),
		"-initrd", initrd, "-append", "console=ttyS0 quiet panic=-1",
	}
	for _, path := range files() {
		name := filepath.Base(path)
		args = append(
			args,
			"-drive",
			"if=none,format=raw,id="+name+",file="+path,
			"-device",
			"nvme,serial="+name+",drive="+name,
		)
	}
	cmd := exec.CommandContext(t.Context(), "qemu-system-x86_64", args...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := hosttest.RunUntil(ctx, cmd, nil)
	if err != nil || !strings.Contains(out, "TEST ENDED 0") {
		t.Fatalf("in the machine: %v\n%s", err, out)
	}
	return false
}

// twoDisks hold one ext4 file system each, the same, and differ in size.
func twoDisks(t *testing.T) (out []string) {
	t.Helper()
	dir := t.TempDir()
	ext4 := filepath.Join(dir, "ext4")
	hosttest.Must(t, errors.Join(os.WriteFile(ext4, nil, 0o600), os.Truncate(ext4, fileSystem)))
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", ext4).CombinedOutput(); err != nil {
		t.Fatalf("mke2fs: %v: %s", err, out)
	}
	content, err := os.ReadFile(ext4)
	hosttest.Must(t, err)
	for i, name := range []string{"a", "b"} {
		path := filepath.Join(dir, name)
		f, err := os.Create(path)
		hosttest.Must(t, err)
		_, err = f.WriteAt(content, 1<<20)
		hosttest.Must(t, errors.Join(err, f.Truncate(mirrorDisk+int64(i)<<20), f.Close()))
		out = append(out, path)
	}
	return out
}

// TestTheKernelWritesBothDisksOfAMirror: what is changed through a mounted file system is on both, and an array that a
// killed process has left is stopped before the disks are chosen again.
func TestTheKernelWritesBothDisksOfAMirror(t *testing.T) {
	t.Parallel()
	if !inVMWith(t, func() []string { return twoDisks(t) }) {
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
	// What has made an array may end in any way, and leave it.
	func() {
		defer func() { _ = recover() }() // as it was thrown
		hosttest.Must(t, mirror.With(t.Context(), m.paths, func(string) error { panic("the agent is killed") }))
	}()
	all, err := h.Disks()
	hosttest.Must(t, err)
	if len(all) != 2 || len(all[0].InUse) == 0 {
		t.Errorf("an array is left, and the disks are not in use: %+v", all)
	}
	if again, err := h.ChoosePair("", "size>=1MiB", nil); err != nil || again.First.Path != p.First.Path {
		t.Errorf("%+v, %v", again, err)
	}
}
