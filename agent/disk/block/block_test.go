package block_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/disktest"
)

// loop returns the path of a real block device.
func loop(t *testing.T, size int64) string {
	t.Helper()
	device, detach, err := disktest.Loop(t.TempDir(), size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := detach(); err != nil {
			t.Error(err)
		}
	})
	return device
}

func file(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string, write bool) *block.Disk {
	t.Helper()
	d, err := block.Open(path, write)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestDisksAndFilesReadWhatWasWritten(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	for kind, path := range map[string]string{"device": loop(t, size), "file": file(t, size)} {
		d := open(t, path, true)
		if d.Size() != size || d.Sector() != 512 {
			t.Errorf("%s: %d bytes in sectors of %d", kind, d.Size(), d.Sector())
		}
		b := block.Buffer(64 << 10)
		for i := range b {
			b[i] = byte(i) | 1
		}
		if _, err := d.WriteAt(b, 1<<20); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if err := d.Flush(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		got := block.Buffer(64 << 10)
		if _, err := d.ReadAt(got, 1<<20); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s: reads something else (%v)", kind, err)
		}
		if err := errors.Join(d.Discard(0, size), d.Zero(1<<20, 32<<10)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if _, err := d.ReadAt(got, 1<<20); err != nil || !bytes.Equal(got[:32<<10], make([]byte, 32<<10)) {
			t.Errorf("%s: zeroed blocks read as something else (%v)", kind, err)
		}
		if err := d.RereadTable(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/nowhere", "/dev/null", t.TempDir()} {
		if d, err := block.Open(path, false); err == nil {
			t.Errorf("opened %s: %v", path, d)
		}
	}
	device := loop(t, 8<<20)
	open(t, device, true)
	if _, err := block.Open(device, true); !errors.Is(err, unix.EBUSY) {
		t.Errorf("claimed twice: %v", err)
	}
	if _, err := block.Open(device, false); err != nil {
		t.Errorf("reading beside a writer: %v", err)
	}
}

func TestPart(t *testing.T) {
	t.Parallel()
	device := loop(t, 8<<20)
	d := open(t, device, true)
	b := block.Buffer(4096)
	copy(b, "found")
	if _, err := d.WriteAt(b, 2<<20); err != nil {
		t.Fatal(err)
	}
	var path string
	stop := errors.New("stop")
	err := d.Part(t.Context(), 2<<20, 1<<20, func(p string) error {
		path = p
		part, err := block.Open(p, false)
		if err != nil {
			return err
		}
		defer part.Close()
		got := block.Buffer(4096)
		if _, err := part.ReadAt(got, 0); err != nil || !strings.HasPrefix(string(got), "found") || part.Size() != 1<<20 {
			t.Errorf("the part of %d bytes begins with %q (%v)", part.Size(), got[:5], err)
		}
		return stop
	})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", path, err)
	}
	if _, err := block.Open(device, true); !errors.Is(err, unix.EBUSY) {
		t.Errorf("the claim was not taken back: %v", err)
	}
	if err := open(t, file(t, 1<<20), true).Part(t.Context(), 0, 4096, nil); !errors.Is(err, block.ErrUnsupported) {
		t.Errorf("part of a file: %v", err)
	}
}

// TestPartWhereAPartitionWas: the kernel still knows the partitions of what was overwritten.
func TestPartWhereAPartitionWas(t *testing.T) {
	t.Parallel()
	device := loop(t, 16<<20)
	// Kernels differ in whether they read a loop device's table by themselves.
	script := "printf 'label: gpt\nstart=2048, size=24576\n' | sfdisk --quiet " + device + " && partx --update " + device
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("make a partition: %v: %s", err, out)
	}
	d := open(t, device, true)
	for _, off := range []int64{0, 15 << 20} {
		if _, err := d.WriteAt(block.Buffer(1<<20), off); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(device + "p1"); err != nil {
		t.Fatalf("the kernel has forgotten by itself: %v", err)
	}
	if err := d.Part(t.Context(), 2<<20, 1<<20, func(string) error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestBuffersAreAligned(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 4096, 4097, 4 << 20} {
		if b := block.Buffer(n); len(b) != n || cap(b) != n {
			t.Errorf("%d: %d of %d", n, len(b), cap(b))
		}
	}
}
