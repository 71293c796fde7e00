package gpt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/internal/gpt"
)

const imageSize = 8 << 20

// madeBy has sgdisk (Debian package gdisk) make a table on an image.
func madeBy(t testing.TB, args ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, make([]byte, imageSize), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sgdisk", append(args, path)...).CombinedOutput(); err != nil {
		t.Fatalf("sgdisk: %v: %s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var usual = []string{"-n", "1:2048:+1M", "-t", "1:ef00", "-c", "1:ESP", "-n", "3:6144:+2M", "-c", "3:wurzel-ü", "-A",
	"3:set:2"}

var id = gpt.GUID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

func TestAddAndFitPleaseOtherTools(t *testing.T) {
	t.Parallel()
	b := madeBy(t, usual...)
	table, err := gpt.Parse(b[:gpt.HeadSize], 512)
	if err != nil {
		t.Fatal(err)
	}
	before := table.Partitions()
	if len(before) != 2 || before[1].Number != 3 || before[1].Name != "wurzel-ü" || before[1].Attributes != 4 ||
		before[1].Offset != 6144*512 || before[1].Size != 2<<20 ||
		before[0].Type.String() != "c12a7328-f81f-11d2-ba4b-00a0c93ec93b" {
		t.Fatalf("read %+v", before)
	}
	const size = 64 << 20
	at := gpt.Place(size, 16<<20)
	number, err := table.Add(gpt.Partition{Name: "INGOT-STATE", Type: gpt.LinuxData, ID: id, Offset: at, Size: 16 << 20})
	if err != nil || number != 2 {
		t.Fatalf("number %d, %v", number, err)
	}
	head := bytes.Clone(b[:gpt.HeadSize])
	tail, err := table.Fit(head, size)
	if err != nil {
		t.Fatal(err)
	}
	disk := make([]byte, size)
	copy(disk, b)
	copy(disk, head)
	copy(disk[size-gpt.TailSize:], tail)
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sgdisk", "-v", "-p", "-i", "2", path).CombinedOutput()
	for _, want := range []string{"No problems found", "'INGOT-STATE'", "04030201-0605-0807-090A-0B0C0D0E0F10",
		"Linux filesystem"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("sgdisk does not say %q: %s (%v)", want, out, err)
		}
	}
	again, err := gpt.Parse(head, 512)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.Partitions(); len(got) != 3 || got[0] != before[0] || got[2] != before[1] ||
		again.DiskID() != table.DiskID() {
		t.Errorf("after: %+v", got)
	}
	if got := binary.LittleEndian.Uint32(head[446+12:]); got != size/512-1 {
		t.Errorf("the protective MBR covers %d blocks", got)
	}
	if !bytes.Equal(head[:446], b[:446]) {
		t.Error("boot code has changed")
	}
}

func TestAddRefuses(t *testing.T) {
	t.Parallel()
	b := madeBy(t, usual...)
	state := gpt.Partition{Name: "INGOT-STATE", Type: gpt.LinuxData, ID: id, Offset: 32 << 20, Size: 16 << 20}
	for name, c := range map[string]struct {
		change func(p *gpt.Partition)
		want   error
	}{
		"name taken":     {func(p *gpt.Partition) { p.Name = "ESP" }, gpt.ErrExists},
		"overlaps":       {func(p *gpt.Partition) { p.Offset = 4 << 20 }, gpt.ErrNoRoom},
		"overlaps below": {func(p *gpt.Partition) { p.Offset = 0 }, gpt.ErrNoRoom},
	} {
		table, err := gpt.Parse(b[:gpt.HeadSize], 512)
		if err != nil {
			t.Fatal(err)
		}
		p := state
		c.change(&p)
		if _, err := table.Add(p); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	table, err := gpt.Parse(b[:gpt.HeadSize], 512)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(126) {
		if _, err := table.Add(gpt.Partition{Name: string(rune('a' + i)), Type: gpt.LinuxData, Offset: (100 + i) << 20,
			Size: 1 << 20}); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := table.Add(state); !errors.Is(err, gpt.ErrNoRoom) {
		t.Errorf("129th partition: %v", err)
	}
	if _, err := table.Fit(bytes.Clone(b[:gpt.HeadSize]), 5<<20); !errors.Is(err, gpt.ErrNoRoom) {
		t.Errorf("a disk that is too small: %v", err)
	}
}

// Any bit that is wrong in header or entries is found.
func TestParseFindsDamage(t *testing.T) {
	t.Parallel()
	b := madeBy(t, usual...)[:gpt.HeadSize]
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.OneOf(rapid.IntRange(512, 512+91), rapid.IntRange(1024, 1024+128*128-1)).Draw(t, "at")
		damaged := bytes.Clone(b)
		damaged[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := gpt.Parse(damaged, 512); !errors.Is(err, gpt.ErrNoTable) {
			t.Fatalf("byte %d: %v", at, err)
		}
	})
	for _, sector := range []int{0, 511, 1024, 4096, 1 << 20} {
		if _, err := gpt.Parse(b, sector); !errors.Is(err, gpt.ErrNoTable) {
			t.Errorf("sectors of %d bytes: %v", sector, err)
		}
	}
	if _, err := gpt.Parse(b[:1000], 512); !errors.Is(err, gpt.ErrNoTable) {
		t.Errorf("a short head: %v", err)
	}
}

func TestUndoLeadsBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		old := rapid.SliceOfN(rapid.Byte(), 2000, 2000).Draw(t, "old")
		changed := bytes.Clone(old)
		for _, at := range rapid.SliceOf(rapid.IntRange(0, 1999)).Draw(t, "changes") {
			changed[at]++
		}
		patch := gpt.Undo(old, changed)
		back := bytes.Clone(changed)
		if err := patch.Apply(back); err != nil || !bytes.Equal(back, old) {
			t.Fatalf("%d pieces do not lead back (%v)", len(patch), err)
		}
	})
	for _, p := range []gpt.Piece{{Offset: -1, Bytes: []byte{1}}, {Offset: 10, Bytes: []byte{1}}} {
		if err := (gpt.Patch{p}).Apply(make([]byte, 10)); err == nil {
			t.Errorf("%+v fits into 10 bytes", p)
		}
	}
}

// FuzzParse: an accepted table can be edited without a panic, and is accepted again.
func FuzzParse(f *testing.F) {
	b := madeBy(f, usual...)
	f.Add(b[512:512+92], b[1024:1024+512])
	f.Fuzz(func(t *testing.T, header, entries []byte) {
		head := make([]byte, gpt.HeadSize)
		copy(head[512:1024], header)
		copy(head[1024:1024+64<<10], entries)
		seal(head)
		table, err := gpt.Parse(head, 512)
		if err != nil {
			return
		}
		if _, err := table.Add(gpt.Partition{Name: "x", Type: gpt.LinuxData, ID: id, Offset: 1 << 40,
			Size: 1 << 20}); err != nil {
			return
		}
		if _, err := table.Fit(head, 2<<40); err != nil {
			return
		}
		if _, err := gpt.Parse(head, 512); err != nil {
			t.Error(err)
		}
	})
}
