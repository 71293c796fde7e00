package mirror_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/mirror"
)

func TestMdadmKnowsTheMirror(t *testing.T) {
	t.Parallel()
	var paths []string
	var halves []mirror.Half
	for i, size := range []int64{64<<20 + 512, 71<<20 + 4096} {
		path := filepath.Join(t.TempDir(), "disk")
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
			t.Fatal(err)
		}
		d, err := block.Open(path, true)
		if err != nil {
			t.Fatal(i, err)
		}
		paths, halves = append(paths, path), append(halves, d)
	}
	m, err := mirror.New(halves[0], halves[1])
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Size() != 63<<20 {
		t.Errorf("the mirror has %d bytes", m.Size())
	}
	if err := m.Check(); !errors.Is(err, mirror.ErrNoMirror) {
		t.Errorf("of empty disks: %v", err)
	}
	if err := m.Label(time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	for i, path := range paths {
		out, err := exec.Command("/usr/sbin/mdadm", "--examine", path).CombinedOutput()
		if err != nil {
			t.Fatalf("mdadm: %v: %s", err, out)
		}
		said := strings.Join(strings.Fields(string(out)), " ")
		for _, want := range []string{
			"Version : 1.0", "Array UUID : " + m.UUID(), "Name : ingot", "Raid Level : raid1", "Raid Devices : 2",
			"Array Size : 64512 KiB", "State : clean", "- correct", "Array State : AA",
			"Device Role : Active device " + string(rune('0'+i)),
		} {
			if !strings.Contains(said, want) {
				t.Errorf("disk %d: mdadm does not say %q: %s", i, want, out)
			}
		}
	}
	if err := m.Clear(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/usr/sbin/mdadm", "--examine", paths[1]).CombinedOutput(); err == nil {
		t.Errorf("mdadm still knows it: %s", out)
	}
}

func TestADiskOfAMirrorThatFailsIsTheMirrorsFault(t *testing.T) {
	t.Parallel()
	a, b := disktest.New(16<<20), disktest.New(16<<20)
	m, err := mirror.New(a, b)
	if err != nil {
		t.Fatal(err)
	}
	data := block.Buffer(1 << 20)
	data[0] = 7
	if _, err := m.WriteAt(data, 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := m.ReadAt(block.Buffer(1<<20), 1<<20); err != nil {
		t.Error(err)
	}
	if _, err := m.WriteAt(data, m.Size()); err == nil {
		t.Error("something was written behind the mirror's end")
	}
	b.Fill([]byte{8}, 1<<20) // bits rot on one of them
	if _, err := m.ReadAt(block.Buffer(1<<20), 1<<20); !errors.Is(err, mirror.ErrDiffer) {
		t.Errorf("read of disks that differ: %v", err)
	}
	b.OnFlush = func() error { return disktest.ErrIO }
	if err := m.Flush(); !errors.Is(err, disktest.ErrIO) || !strings.Contains(err.Error(), "disk 2") {
		t.Errorf("flush: %v", err)
	}
	b.OnWrite = func([]byte, int64) (int, error) { return 0, disktest.ErrIO }
	if _, err := m.WriteAt(data, 0); !errors.Is(err, disktest.ErrIO) {
		t.Errorf("write: %v", err)
	}
	if err := m.Label(time.Now()); !errors.Is(err, disktest.ErrIO) {
		t.Errorf("label: %v", err)
	}
	if err := m.Check(); !errors.Is(err, mirror.ErrNoMirror) {
		t.Errorf("a mirror that was labelled on one disk: %v", err)
	}
	b.SectorSize = 4096
	if _, err := mirror.New(a, b); !errors.Is(err, block.ErrUnsupported) {
		t.Errorf("disks with other sectors: %v", err)
	}
}
