package disks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/ext4"
	"github.com/ingot-metal/ingot/internal/gpt"
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

// TestADataDiskIsMadeOnce: an empty disk gets a file system that fills it, and other programs agree; another
// installation keeps every byte of it. It runs in a virtual machine, because growing a file system needs
// CAP_SYS_RESOURCE.
func TestADataDiskIsMadeOnce(t *testing.T) {
	t.Parallel()
	var empty string
	if !inVM(t, func(dir string) []string {
		empty = emptyDisk(t, filepath.Join(dir, "D"), dataSize)
		bus, err := disktest.NewBus(t.TempDir())
		hosttest.Must(t, err)
		state, err := os.ReadFile(filepath.Join(bus.Root, "template"))
		hosttest.Must(t, err)
		files := archiveDisk(t, filepath.Join(dir, "files"), map[string][]byte{
			"image": stockImage(t, "ext4", 16, stockFiles), "state": state, "data.ext4.zst": packedTemplate(t),
		})
		return slices.Concat(nvme(emptyDisk(t, filepath.Join(dir, "S"), 160<<20)), nvme(empty), nvme(files))
	}) {
		checkDataDisk(t, empty)
		return
	}
	hosttest.Must(t, os.MkdirAll("/tmp/ingot", 0o700))
	hosttest.Must(t, exec.Command("/bin/busybox", "ip", "link", "set", "lo", "up").Run())
	h := NewStorage(system.NewSystem("/", true, slog.Default()), Patience{}, "tmp/ingot/state", Open, image.NewClient())
	archive, err := h.ChooseDisk("serial=files", nil)
	hosttest.Must(t, err)
	files := unpack(t, archive.Path)
	for _, name := range []string{"state", "data.ext4.zst"} {
		hosttest.Must(t, os.WriteFile("/tmp/ingot/"+name, files[name], 0o600))
	}
	hosttest.Must(t, os.WriteFile("/tmp/ingot/agent", make([]byte, 1<<20), 0o700))
	h.Program = "/tmp/ingot/agent"

	_, got, err := h.WriteImage(t.Context(), effect.Cause{}, dataOrder(t, files["image"]))
	hosttest.Must(t, err)
	if len(got.Mounts) != 1 || !got.Mounts[0].Made || got.Mounts[0].Path != "/srv/data-1" {
		t.Fatalf("%+v", got.Mounts)
	}
	if !slices.ContainsFunc(got.Changes, func(c firstboot.Change) bool {
		return strings.HasSuffix(c.Path, `/system/srv-data\x2d1.mount`)
	}) {
		t.Errorf("no unit mounts it: %+v", got.Changes)
	}
	before := digestOf(t, h, "serial=D")
	_, again, err := h.WriteImage(t.Context(), effect.Cause{}, dataOrder(t, files["image"]))
	if err != nil || len(again.Mounts) != 1 || again.Mounts[0].Made || again.Mounts[0].PartID != got.Mounts[0].PartID {
		t.Errorf("%+v, %v", again.Mounts, err)
	}
	if digestOf(t, h, "serial=D") != before {
		t.Error("the second installation has changed the data disk")
	}
}

// TestADiskThatNobodyAskedForStays: an installation without data disks touches none but the system's.
func TestADiskThatNobodyAskedForStays(t *testing.T) {
	t.Parallel()
	h, _, data := dataHost(t)
	w := dataOrder(t, osImage(t))
	w.Data = nil
	if _, e, err := h.WriteImage(t.Context(), effect.Cause{}, w); err != nil || len(e.Mounts) > 0 {
		t.Errorf("%+v, %v", e.Mounts, err)
	}
	untouched(t, "the other disk", data)
}

// digestOf shows whether a disk has changed; its hash is a fast one in emulation.
func digestOf(t *testing.T, h *Storage, rule string) uint64 {
	t.Helper()
	d, err := h.ChooseDisk(rule, nil)
	hosttest.Must(t, err)
	f, err := os.Open(d.Path)
	hosttest.Must(t, err)
	defer f.Close() // only read
	all := xxhash.New()
	_, err = io.CopyBuffer(all, struct{ io.Reader }{f}, make([]byte, 4<<20))
	hosttest.Must(t, err)
	return all.Sum64()
}

// TestADataDiskIsEmptyOrMadeWheneverThePowerIsLost while its table is written: another try goes on with it.
func TestADataDiskIsEmptyOrMadeWheneverThePowerIsLost(t *testing.T) {
	t.Parallel()
	empty, kept := 0, 0
	for seed := range uint64(21) {
		h, _, data := dataHost(t)
		all, err := h.Disks()
		hosttest.Must(t, err)
		dev := all[slices.IndexFunc(all, func(d disk.Device) bool { return d.Serial == "D" })]
		d, err := h.open(dev.Path, true)
		hosttest.Must(t, err)
		table, err := dataTableOf(d, dev, "/srv/data-1")
		hosttest.Must(t, err)
		// Only the table's first and last sectors are not zero. The disk writes whole sectors.
		ends := []int64{gpt.TailSize - 34*512, gpt.TailSize - 512, gpt.TailSize, gpt.TailSize + 512, gpt.TailSize + 1024,
			gpt.TailSize + 1536, gpt.TailSize + 9216}
		data.Kept, data.Rand = disktest.KeepSome, rand.New(rand.NewPCG(seed, 7))
		data.CutAt = data.Written() + ends[seed%uint64(len(ends))]
		if err := table.write(d); err == nil {
			t.Fatalf("seed %d: the power was not lost", seed)
		}
		data.Disk = data.PowerOn()
		chosen, err := h.chooseData([]string{"/srv/data-1 serial=D"}, nil)
		switch {
		case err != nil:
			t.Errorf("seed %d: %v", seed, err)
		case chosen[0].kept == table.part.ID:
			kept++
		default:
			empty++
		}
	}
	if empty == 0 || kept == 0 {
		t.Errorf("%d were empty, %d were kept", empty, kept)
	}
	t.Logf("%d were empty, %d were kept", empty, kept)
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
		"one disk for two": func(_ *disktest.Unit, w *WriteImage) {
			w.Data = []string{"/srv serial=D", "/data serial=D"}
		},
		"a table that is nearly ours": func(u *disktest.Unit, _ *WriteImage) { u.Fill([]byte("EFI PART"), 512) },
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
	if len(bytes.Trim(head, "\x00")) > 0 {
		t.Error("the system's disk has a partition table")
	}
	data.OnWrite = nil
	if got, err := h.chooseData([]string{"/srv/data-1 serial=D"}, nil); err != nil || got[0].kept != (gpt.GUID{}) {
		t.Errorf("the disk is not taken for an empty one: %+v, %v", got, err)
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

// dataTemplate is what an installer's image has, made once.
var dataTemplate = sync.OnceValues(func() ([]byte, error) { return ext4.DataTemplate(context.Background()) })

func packedTemplate(t *testing.T) []byte {
	t.Helper()
	packed, err := dataTemplate()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}
