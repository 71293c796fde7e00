package disks

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/gpt"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/imagebuild"
	"github.com/ingot-metal/ingot/internal/disk"
)

const dataSize = 300<<20 + 512*7

// dataHost is an installer with an empty disk S for the system and an empty disk D for data.
func dataHost(t *testing.T) (h *Storage, sys, data *disktest.Unit) {
	t.Helper()
	h, bus := busHost(t)
	program := filepath.Join(t.TempDir(), "agent")
	if err := errors.Join(os.WriteFile(filepath.Join(bus.Root, "data.ext4.zst"), packedTemplate(t), 0o600),
		os.WriteFile(program, make([]byte, 1<<20), 0o700)); err != nil {
		t.Fatal(err)
	}
	sys = &disktest.Unit{Disk: disktest.New(160 << 20), Serial: "S", Model: "M"}
	data = &disktest.Unit{Disk: disktest.New(dataSize), Serial: "D", Model: "M"}
	for _, u := range []*disktest.Unit{sys, data} {
		u.Fill(make([]byte, u.Size()), 0) // as from the factory, or erased
	}
	attach(t, bus, "sda", sys)
	attach(t, bus, "sdb", data)
	h.Program = program
	return h, sys, data
}

func dataOrder(t *testing.T, raw []byte) WriteImage {
	t.Helper()
	var c image.Commit
	w := order(t, raw, &c)
	w.DiskRule, w.Data = "serial=S", []string{"/srv/data-1 serial=D"}
	return w
}

// TestADataDiskIsMadeOnce: an empty disk gets a file system that fills it; another installation keeps every byte of it.
func TestADataDiskIsMadeOnce(t *testing.T) {
	if !growsExt4() {
		t.Skip("without CAP_SYS_RESOURCE the kernel grows no ext4")
	}
	h, sys, data := dataHost(t)
	raw := stockImage(t, "ext4", 48, stockFiles)
	_, got, err := h.WriteImage(t.Context(), effect.Cause{}, dataOrder(t, raw))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Mounts) != 1 || !got.Mounts[0].Made || got.Mounts[0].Disk != "D" || got.Mounts[0].Path != "/srv/data-1" {
		t.Fatalf("%+v", got.Mounts)
	}
	saved := filepath.Join(t.TempDir(), "data")
	f, err := os.Create(saved)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(data.Save(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	checkDataDisk(t, saved)
	unit := ""
	for _, c := range got.Changes {
		if strings.HasSuffix(c.Path, `/system/srv-data\x2d1.mount`) {
			unit = c.Path
		}
	}
	if unit == "" {
		t.Errorf("no unit mounts it: %+v", got.Changes)
	}
	before := data.Copy()
	_, again, err := h.WriteImage(t.Context(), effect.Cause{}, dataOrder(t, raw))
	if err != nil || len(again.Mounts) != 1 || again.Mounts[0].Made || again.Mounts[0].PartID != got.Mounts[0].PartID {
		t.Errorf("%+v, %v", again.Mounts, err)
	}
	if at, same := data.SameAs(before); !same {
		t.Errorf("the second installation has changed the data disk at byte %d", at)
	}
	// Without the order the disk is nobody's business.
	w := dataOrder(t, raw)
	w.Data = nil
	if _, e, err := h.WriteImage(t.Context(), effect.Cause{}, w); err != nil || len(e.Mounts) > 0 {
		t.Errorf("%+v, %v", e.Mounts, err)
	}
	if len(sys.Writes()) == 0 {
		t.Error("nothing was written to the system's disk")
	}
}

// TestADiskWithAnythingElseOnItIsNoDataDisk: neither disk is written.
func TestADiskWithAnythingElseOnItIsNoDataDisk(t *testing.T) {
	t.Parallel()
	raw := osImage(t)
	for name, spoil := range map[string]func(*disktest.Unit, *WriteImage){
		"a file system":        func(u *disktest.Unit, _ *WriteImage) { u.Fill([]byte{0x53, 0xef}, 1024+56) },
		"something at its end": func(u *disktest.Unit, _ *WriteImage) { u.Fill([]byte("RAID"), dataSize-8192) },
		"it is protected":      func(_ *disktest.Unit, w *WriteImage) { w.Protected = []string{"serial=D"} },
		"it is the system's":   func(_ *disktest.Unit, w *WriteImage) { w.Data = []string{"/srv serial=S"} },
		"there is none":        func(_ *disktest.Unit, w *WriteImage) { w.Data = []string{"/srv serial=X"} },
		"one disk for two":     func(_ *disktest.Unit, w *WriteImage) { w.Data = []string{"/srv serial=D", "/data serial=D"} },
	} {
		h, sys, data := dataHost(t)
		w := dataOrder(t, raw)
		spoil(data, &w)
		_, _, err := h.WriteImage(t.Context(), effect.Cause{}, w)
		var no *disk.NoUniqueMatch
		if !errors.As(err, &no) {
			t.Errorf("%s: %v", name, err)
		}
		w.Disk = disk.Ref{ID: "S"}
		if err := h.ProbeImage(t.Context(), w, 512); !errors.As(err, &no) {
			t.Errorf("%s, before the installation: %v", name, err)
		}
		untouched(t, name+", the system's disk", sys)
		untouched(t, name+", the data disk", data)
	}
}

// TestADataDiskThatFailsLeavesNoSystem: the machine does not boot without the disk that was asked for, and another try
// finds the disk empty still.
func TestADataDiskThatFailsLeavesNoSystem(t *testing.T) {
	h, sys, data := dataHost(t)
	raw := stockImage(t, "ext4", 48, stockFiles)
	data.OnWrite = func(b []byte, off int64) (int, error) {
		if off < gpt.HeadSize {
			return 0, disktest.ErrIO
		}
		return len(b), nil
	}
	if _, got, err := h.WriteImage(t.Context(), effect.Cause{}, dataOrder(t, raw)); err == nil ||
		got.Left != image.LeftUnbootable || !strings.Contains(err.Error(), "/srv/data-1") {
		t.Errorf("%+v, %v", got, err)
	}
	head := make([]byte, gpt.HeadSize)
	sys.Durable(head, 0)
	if !zeros(head) {
		t.Error("the system's disk has a partition table")
	}
	data.OnWrite = nil
	if got, err := h.chooseData([]string{"/srv/data-1 serial=D"}, nil); err != nil || got[0].kept != (gpt.GUID{}) {
		t.Errorf("the disk is not taken for an empty one: %+v, %v", got, err)
	}
}

func growsExt4() bool {
	return system.NewSystem("/", false, slog.Default()).HasCapability(unix.CAP_SYS_RESOURCE)
}

// TestTheKernelMakesADataDisk: what other programs make of the disk afterwards, and what another installation does.
func TestTheKernelMakesADataDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	template, empty := filepath.Join(dir, "template"), filepath.Join(dir, "empty")
	inside := inVMWith(t, func() []string {
		packed := packedTemplate(t)
		// A disk has whole sectors: the length goes before.
		b := append(binary.BigEndian.AppendUint64(nil, uint64(len(packed))), packed...)
		hosttest.Must(t, errors.Join(os.WriteFile(template, b, 0o600), os.Truncate(template, 16<<20),
			os.WriteFile(empty, nil, 0o600), os.Truncate(empty, dataSize)))
		return []string{template, empty}
	})
	if !inside {
		checkDataDisk(t, empty)
		return
	}
	hosttest.Must(t, os.MkdirAll("/tmp/ingot", 0o700))
	b, err := os.ReadFile("/dev/nvme0n1")
	hosttest.Must(t, err)
	hosttest.Must(t, os.WriteFile("/tmp/ingot/data.ext4.zst", b[8:8+binary.BigEndian.Uint64(b)], 0o600))
	h := NewStorage(system.NewSystem("/", true, slog.Default()), Patience{}, "tmp/ingot/state", Open, image.NewClient())
	order := []string{"/srv/data-1 serial=empty"}
	chosen, err := h.chooseData(order, nil)
	hosttest.Must(t, err)
	made, err := h.makeData(t.Context(), chosen)
	hosttest.Must(t, err)
	if len(made) != 1 || !made[0].Made {
		t.Errorf("%+v", made)
	}
	if chosen, err = h.chooseData(order, nil); err != nil || chosen[0].kept.String() != made[0].PartID {
		t.Errorf("%+v, %v", chosen, err)
	}
	if again, err := h.makeData(t.Context(), chosen); err != nil || again[0].Made || again[0].PartID != made[0].PartID {
		t.Errorf("%+v, %v", again, err)
	}
}

// checkDataDisk asks programs that are not ours.
func checkDataDisk(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	table, err := gpt.Parse(b[:gpt.HeadSize], 512)
	if err != nil {
		t.Fatal(err)
	}
	p := table.Partitions()[0]
	part := path + "-part"
	if err := os.WriteFile(part, b[p.Offset:p.Offset+p.Size], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ command, want string }{
		{"sgdisk -v " + path, "No problems found"},
		{"e2fsck -fn " + part, "Pass 5"},
		{"dumpe2fs -h " + part, "Block count:              76288\n"}, // 298 MiB
	} {
		cmd := exec.Command("sh", "-c", c.command)
		cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v: %s", c.command, err, out)
		}
	}
}

// packedTemplate is what an installer's image has.
func packedTemplate(t *testing.T) []byte {
	t.Helper()
	packed, err := imagebuild.DataTemplate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return packed
}
