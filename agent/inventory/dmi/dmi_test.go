package dmi

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/go-smbios/smbios"
)

// recorded are the tables of real machines that come with the module go-smbios (Talos), by their name.
func recorded(t testing.TB) map[string][]byte {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/siderolabs/go-smbios").Output()
	if err != nil {
		t.Fatalf("find the module: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "smbios/testdata/*.dmi"))
	if err != nil || len(files) < 5 {
		t.Fatalf("recorded tables: %v, %v", files, err)
	}
	out := map[string][]byte{}
	for _, f := range files {
		table, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".dmi")] = table
	}
	return out
}

// hyperV is a recorded table that is damaged: after five structures come zeros.
const hyperV = "HyperV"

// The tables of real machines read as another decoder reads them.
func TestWalkIsAsAnotherDecoder(t *testing.T) {
	t.Parallel()
	modules := 0
	for name, table := range recorded(t) {
		mine, err := Walk(table)
		if damaged := name == hyperV; (err != nil) != damaged {
			t.Errorf("%s: %v", name, err)
		}
		theirs, err := smbios.Decode(bytes.NewReader(table), smbios.Version{Major: 3})
		if err != nil {
			t.Fatal(err)
		}
		mine = slices.DeleteFunc(mine, func(s Structure) bool { return s.Type != TypeMemoryDevice })
		if len(mine) != len(theirs.MemoryDevices) {
			t.Fatalf("%s: %d memory devices, not %d", name, len(mine), len(theirs.MemoryDevices))
		}
		for i, want := range theirs.MemoryDevices {
			got := mine[i].Module()
			if got.Locator != strings.TrimSpace(want.DeviceLocator) || got.Bank != strings.TrimSpace(want.BankLocator) ||
				got.Manufacturer != strings.TrimSpace(want.Manufacturer) || got.Serial != strings.TrimSpace(want.SerialNumber) ||
				got.PartNumber != strings.TrimSpace(want.PartNumber) || got.SpeedMTs != int(want.Speed) ||
				mine[i].Word(0x0c) != uint16(want.Size) || mine[i].Byte(0x12) != byte(want.MemoryType) {
				t.Errorf("%s: %+v, not %+v", name, got, want)
			}
			if got.Bytes > 0 {
				modules++
			}
		}
	}
	if modules < 20 {
		t.Errorf("%d modules in all", modules)
	}
}

// A table that ends early has what came before the end.
func TestACutTableKeepsItsBeginning(t *testing.T) {
	t.Parallel()
	for name, table := range recorded(t) {
		whole, err := Walk(table)
		if name == hyperV {
			if len(whole) != 5 || !errors.Is(err, ErrTable) {
				t.Errorf("%s: %d structures, %v", name, len(whole), err)
			}
			continue
		}
		for n := range table {
			part, err := Walk(table[:n])
			if len(part) > len(whole) || !reflect.DeepEqual(part, whole[:len(part)]) && len(part) > 0 {
				t.Fatalf("%s, %d bytes: %d structures, which are others", name, n, len(part))
			}
			if len(part) < len(whole) && err == nil && n > 0 && !boundary(table, n) {
				t.Fatalf("%s, %d bytes: no word of what is missing", name, n)
			}
		}
	}
}

// boundary reports whether a structure ends at byte n.
func boundary(table []byte, n int) bool { return n >= 2 && table[n-1] == 0 && table[n-2] == 0 }

func TestLies(t *testing.T) {
	t.Parallel()
	good := []byte{1, 4, 0, 0, 0, 0}
	for name, c := range map[string]struct {
		table []byte
		kept  int
	}{
		"nothing": {nil, 0}, "noise": {bytes.Repeat([]byte{0xff}, 64), 0},
		"a length of 0":            {append(slices.Clone(good), 17, 0, 0, 0, 0, 0), 1},
		"longer than the table":    {append(slices.Clone(good), 17, 200, 0, 0, 0, 0), 1},
		"texts without an end":     {append(slices.Clone(good), 17, 4, 0, 0, 'x', 'y'), 1},
		"more than there may be":   {bytes.Repeat(good, MostStructures+1), MostStructures},
		"half a header at the end": {append(slices.Clone(good), 17, 4), 1},
	} {
		got, err := Walk(c.table)
		if len(got) != c.kept || !errors.Is(err, ErrTable) {
			t.Errorf("%s: %d structures, %v", name, len(got), err)
		}
	}
	short := Structure{Type: TypeMemoryDevice, data: []byte{17, 5, 0, 0, 9}, text: [][]byte{[]byte("x")}}
	if m := short.Module(); m.Bytes != 0 || m.Locator != "" || m.SpeedMTs != 0 {
		t.Errorf("a structure of five bytes is %+v", m)
	}
}

// TestFirmware is a structure of type 45 as section 7.46 lays it out.
func TestFirmware(t *testing.T) {
	t.Parallel()
	s, err := Walk(append([]byte{45, 0x18, 1, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"BMC Firmware\x00 3.11 \x00\x00"...))
	if err != nil || len(s) != 1 || s[0].Component() != (Component{"BMC Firmware", "3.11"}) {
		t.Errorf("%+v, %v", s, err)
	}
}

func FuzzWalk(f *testing.F) {
	for _, table := range recorded(f) {
		f.Add(table)
	}
	f.Fuzz(func(t *testing.T, table []byte) {
		all, err := Walk(table)
		if len(all) > MostStructures || err == nil && len(table) == 0 {
			t.Fatalf("%d structures, %v", len(all), err)
		}
		for _, s := range all {
			_ = fmt.Sprint(s.Module(), s.Component())
		}
	})
}
