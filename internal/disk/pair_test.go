package disk_test

import (
	"errors"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/internal/disk"
)

// TestChoosePair: one pair is meant, or nothing is written; what a choice of one disk passes over is passed over.
func TestChoosePair(t *testing.T) {
	t.Parallel()
	a := disk.Device{Path: "/dev/sda", Serial: "A", Size: 100 << 30, Sector: 512}
	b := disk.Device{Path: "/dev/sdb", Serial: "B", Size: 100 << 30, Sector: 512}
	c := disk.Device{Path: "/dev/sdc", Serial: "C", Size: 900 << 30, Sector: 512}
	used := disk.Device{Path: "/dev/sdd", Serial: "D", Size: 100 << 30, Sector: 512, InUse: []string{"/"}}
	again := a
	again.Path = "/dev/sde" // another path to A, which has no WWN to know it by
	for name, c := range map[string]struct {
		disks        []disk.Device
		rule, mirror string
		protected    []string
		want         string // serial numbers; "": none
	}{
		"both named":                 {[]disk.Device{a, b, c}, "serial=B", "serial=A", nil, "B A"},
		"the two there are":          {[]disk.Device{a, b}, "", "size>=1GiB", nil, "A B"},
		"two of one kind":            {[]disk.Device{c, b, a}, "size=100GiB", "size=100GiB", nil, "B A"},
		"three of one kind":          {[]disk.Device{a, b, c}, "", "size>=1GiB", nil, ""},
		"one is not enough":          {[]disk.Device{a}, "", "size>=1GiB", nil, ""},
		"one disk for both rules":    {[]disk.Device{a, b}, "serial=A", "serial=A", nil, ""},
		"the second is protected":    {[]disk.Device{a, b}, "serial=A", "serial=B", []string{"serial=B"}, ""},
		"the third is protected":     {[]disk.Device{a, b, c}, "", "size>=1GiB", []string{"serial=C"}, "A B"},
		"the second is in use":       {[]disk.Device{a, used}, "serial=A", "serial=D", nil, ""},
		"a second path is no mirror": {[]disk.Device{a, again}, "path=/dev/sda", "path=/dev/sde", nil, ""},
	} {
		protected, err := disk.ParseRules(c.protected)
		if err != nil {
			t.Fatal(err)
		}
		got, err := disk.ChoosePair(c.disks, rule(t, c.rule), rule(t, c.mirror), protected)
		var no *disk.NoUniqueMatch
		switch {
		case c.want != "" && (err != nil || got.First.Serial+" "+got.Second.Serial != c.want):
			t.Errorf("%s: %v, %v; want %s", name, got, err, c.want)
		case c.want == "" && (!errors.As(err, &no) || !strings.Contains(err.Error(), "pair")):
			t.Errorf("%s: %v, %v", name, got, err)
		}
		// The facts that are known beforehand never refuse an order that the installer would execute.
		known := disk.Machine{Disks: c.disks, DisksKnown: true}
		why := disk.FitPair(known, disk.Image{Ref: "os", RawSize: 1 << 30}, rule(t, c.rule), rule(t, c.mirror), protected)
		if c.want != "" && why != nil {
			t.Errorf("%s: refused beforehand: %v", name, why)
		}
	}
}

// TestAPairThatCannotBeAMirror is refused before anything is written.
func TestAPairThatCannotBeAMirror(t *testing.T) {
	t.Parallel()
	small := disk.Device{Path: "/dev/sda", Size: 10 << 30, Sector: 512}
	large := disk.Device{Path: "/dev/sdb", Size: 100 << 30, Sector: 4096}
	image := disk.Image{Ref: "os", RawSize: 9 << 30}
	if why := image.FitsOnPair(disk.Pair{First: small, Second: large}); why == nil ||
		why.Reason != baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH {
		t.Errorf("sectors that differ: %v", why)
	}
	large.Sector = 512
	if why := image.FitsOnPair(disk.Pair{First: large, Second: small}); why != nil {
		t.Errorf("it fits: %v", why)
	}
	image.RawSize = 10<<30 - disk.Reserve // fits the smaller disk, and not a mirror of it
	pair := disk.Pair{First: large, Second: small}
	if why := image.FitsOnPair(pair); why == nil || why.Reason != baremetalv1.Reason_IMAGE_TOO_LARGE {
		t.Errorf("too large: %v", why)
	}
	known := disk.Machine{Disks: []disk.Device{small, large}, DisksKnown: true}
	some := rule(t, "size>=1GiB")
	if why := disk.FitPair(known, image, disk.Rule{}, some, nil); why == nil ||
		why.Reason != baremetalv1.Reason_IMAGE_TOO_LARGE {
		t.Errorf("by the inventory: %v", why)
	}
	if why := disk.FitPair(known, image, rule(t, "size>=1TiB"), some, nil); why == nil ||
		why.Reason != baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH {
		t.Errorf("by the inventory, no disk: %v", why)
	}
}
