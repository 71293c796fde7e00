package disk_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/internal/disk"
)

var sda = disk.Device{
	Name: "sda", Path: "/dev/sda", Links: []string{"/dev/disk/by-id/ata-X_S1", "/dev/disk/by-path/pci-1"},
	Serial: "S1", WWN: "naa.5000c500A1", Model: "SAMSUNG MZ7/LH [2]", Size: 480 << 30,
}

func TestRules(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]bool{
		"": true, " ": true, "serial=S1": true, "serial = S1 ": true, "serial=s1": false, "serial=S": false,
		"wwn=naa.5000c500A1": true, "wwn=0x5000C500a1": true, "wwn=5000c500a1": true, "wwn=5000c500a2": false,
		"path=/dev/sda": true, "path=/dev/disk/by-path/pci-1": true, "path=/dev/disk/../sda": true, "path=/dev/sdb": false,
		"model=SAMSUNG*": true, "model=*MZ7/LH [2]": true, "model=SAMSUNG": false, "model=samsung*": false,
		"model=*[2]":  true,
		"model=*[23]": false, "model=SAMSUNG?MZ7/LH [2]": false,
		"size>=480GiB": true, "size>=481GiB": false, "size<=480GiB": true, "size>480GiB": false, "size<481GiB": true,
		"size=480GiB": true, "size=480GB": false, "size >= 100 GiB": true, "size>=515396075520": true, "size>=1TB": false,
		"serial=S1,size>=100GiB": true, "serial=S1,size>=1TiB": false, "serial=S2,size>=1GiB": false,
	} {
		r, err := disk.ParseRule(rule)
		if err != nil {
			t.Errorf("%q: %v", rule, err)
			continue
		}
		if r.Match(sda) != want {
			t.Errorf("%q matches: %t", rule, !want)
		}
		again, err := disk.ParseRule(r.String())
		if err != nil || again.Match(sda) != want || r.Empty() != (strings.TrimSpace(rule) == "") {
			t.Errorf("%q comes back as %q: %v", rule, r, err)
		}
	}
}

func TestBadRules(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{
		"S1", "=S1", "serial", "serial=", "serial>=S1", "colour=red", "size", "size>=", "size>=big", "size>=-1GiB",
		"size>=1GiBB",
		"size>=9999999TiB", "path=sda", "path=/etc/passwd", "serial=S1,", ",serial=S1", "wwn<1",
	} {
		if r, err := disk.ParseRule(rule); !errors.As(err, new(*disk.RuleError)) {
			t.Errorf("%q is read as %q, %v", rule, r, err)
		}
	}
	if _, err := disk.ParseRules([]string{"serial=1", "", "x"}); err == nil || !strings.Contains(err.Error(), "empty") ||
		!strings.Contains(err.Error(), `"x"`) {
		t.Errorf("not all problems at once: %v", err)
	}
}

// An empty WWN or serial of a disk is no match for anything.
func TestDisksWithoutNames(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"serial=S1", "wwn=0x", "wwn=naa.", "model=S*"} {
		r, err := disk.ParseRule(rule)
		if err != nil {
			t.Fatal(err)
		}
		if r.Match(disk.Device{Path: "/dev/sda", Size: 1}) {
			t.Errorf("%q matches a disk without names", rule)
		}
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	ok := disk.Device{Path: "/dev/a", Serial: "A", Size: 100}
	other := disk.Device{Path: "/dev/b", Serial: "B", Size: 200}
	usb := disk.Device{Path: "/dev/usb", Serial: "U", Size: 50, Removable: true}
	readOnly := disk.Device{Path: "/dev/ro", Serial: "R", Size: 50, ReadOnly: true}
	busy := disk.Device{Path: "/dev/busy", Serial: "M", Size: 50, InUse: []string{"/"}}
	empty := disk.Device{Path: "/dev/empty", Serial: "E"}
	for name, c := range map[string]struct {
		devices   []disk.Device
		rule      string
		protected []string
		want      string // serial, or the error
	}{
		"the only one":       {[]disk.Device{ok}, "", nil, "A"},
		"the only fit one":   {[]disk.Device{usb, readOnly, ok, busy, empty}, "", nil, "A"},
		"two":                {[]disk.Device{ok, other}, "", nil, "2 disks fit, not one"},
		"two, one protected": {[]disk.Device{ok, other}, "", []string{"serial=A"}, "B"},
		"by rule":            {[]disk.Device{ok, other}, "size>=150B", nil, "B"},
		"rule fits both":     {[]disk.Device{ok, other}, "size>=50B", nil, "/dev/b serial=B size=200B: fits"},
		"rule fits none": {[]disk.Device{ok, other}, "serial=C", nil,
			"/dev/a serial=A size=100B: the rule does not fit"},
		"rule means a protected one": {[]disk.Device{ok, other}, "serial=A", []string{"size<=150B"},
			"protected by size<=150B"},
		"rule means a removable one": {[]disk.Device{ok, usb}, "serial=U", nil, "removable"},
		"rule means a read-only one": {[]disk.Device{ok, readOnly}, "serial=R", nil, "read-only"},
		"rule means one in use":      {[]disk.Device{ok, busy}, "serial=M", nil, "in use: /"},
		"no disk":                    {nil, "", nil, "the machine has no disk"},
	} {
		rule, err := disk.ParseRule(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		protected, err := disk.ParseRules(c.protected)
		if err != nil {
			t.Fatal(err)
		}
		got, err := disk.Choose(c.devices, rule, protected)
		var no *disk.NoUniqueMatch
		if errors.As(err, &no) {
			got.Serial = err.Error()
		}
		if !strings.Contains(got.Serial, c.want) || (err == nil) != (len(c.want) == 1) {
			t.Errorf("%s: %q (%v), want %q", name, got.Serial, err, c.want)
		}
	}
}

// Whatever the disks and the rule: the chosen disk fits, is the only one, is never protected or unfit, and does not
// depend on the order of discovery.
func TestChooseNeverTakesTheWrongDisk(t *testing.T) {
	t.Parallel()
	device := rapid.Custom(func(t *rapid.T) disk.Device {
		serial := rapid.SampledFrom([]string{"A", "B", "C", "D"}).Draw(t, "serial")
		return disk.Device{
			Path: "/dev/" + serial, Serial: serial, Size: rapid.SampledFrom([]int64{0, 1 << 30, 2 << 30}).Draw(t, "size"),
			Removable: rapid.Bool().Draw(t, "removable"), ReadOnly: rapid.Bool().Draw(t, "ro"),
		}
	})
	rules := rapid.SampledFrom([]string{"", "serial=A", "serial=B", "size>=2GiB", "size<2GiB,serial=C", "path=/dev/D",
		"model=*"})
	rapid.Check(t, func(t *rapid.T) {
		devices := rapid.SliceOfNDistinct(device, 0, 4, func(d disk.Device) string { return d.Serial }).Draw(t, "devices")
		rule, err := disk.ParseRule(rules.Draw(t, "rule"))
		if err != nil {
			t.Fatal(err)
		}
		var protected []disk.Rule
		for _, s := range rapid.SliceOfN(rules.Filter(func(s string) bool { return s != "" }), 0, 2).Draw(t, "protected") {
			p, err := disk.ParseRule(s)
			if err != nil {
				t.Fatal(err)
			}
			protected = append(protected, p)
		}
		may := slices.DeleteFunc(slices.Clone(devices), func(d disk.Device) bool {
			kept := slices.ContainsFunc(protected, func(p disk.Rule) bool { return p.Match(d) })
			return kept || d.Removable || d.ReadOnly || d.Size == 0 || !rule.Match(d)
		})
		got, err := disk.Choose(devices, rule, protected)
		if (err == nil) != (len(may) == 1) || err == nil && got.Serial != may[0].Serial {
			t.Fatalf("got %v, %v; may be written: %v", got, err, may)
		}
		shuffled := slices.Clone(devices)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again, err2 := disk.Choose(shuffled, rule, protected)
		if again.Serial != got.Serial || (err == nil) != (err2 == nil) {
			t.Fatalf("another order gives %v, %v", again, err2)
		}
	})
}

func TestUnprotected(t *testing.T) {
	t.Parallel()
	a, b := disk.Device{Path: "/dev/a", Serial: "A", Size: 1},
		disk.Device{Path: "/dev/b", Serial: "B", Size: 1, Removable: true}
	got, err := disk.Unprotected([]disk.Device{a, b}, nil)
	if err != nil || len(got) != 1 || got[0].Serial != "A" {
		t.Errorf("%v, %v", got, err)
	}
	keep, err := disk.ParseRules([]string{"serial=A"})
	if err != nil {
		t.Fatal(err)
	}
	var no *disk.NoUniqueMatch
	if _, err := disk.Unprotected([]disk.Device{a, b}, keep); !errors.As(err, &no) || len(no.Candidates) != 2 {
		t.Errorf("%v", err)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1 << 30: "1GiB", 480103981056: "447.1GiB",
		1536 << 20: "1.5GiB", 10<<40 + 1: "10.0TiB"} {
		if got := disk.FormatSize(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"serial=S1,size>=100GiB", "model=*[", "wwn=0x1", "path=/dev/../etc",
		"size>=99999999999999999999TiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := disk.ParseRule(s)
		if err != nil {
			return
		}
		again, err := disk.ParseRule(r.String())
		if err != nil || again.Match(sda) != r.Match(sda) {
			t.Errorf("%q comes back as %q: %v", s, r, err)
		}
	})
}
