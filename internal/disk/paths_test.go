package disk_test

import (
	"testing"

	"github.com/ingot-metal/ingot/internal/disk"
)

// TestWhatMayBeAPathToAProtectedDiskIsProtected: two paths without a WWN are two devices, and a rule protects one by
// its path. The same holds for one that is in use.
func TestWhatMayBeAPathToAProtectedDiskIsProtected(t *testing.T) {
	t.Parallel()
	a := disk.Device{Path: "/dev/sda", Serial: "S", Model: "M", Size: 1 << 30, Sector: 512}
	b, other := a, a
	b.Path = "/dev/sdb"
	other.Path, other.Serial = "/dev/sdc", "T"
	protected := rules(t, "path=/dev/sda")
	if got, err := disk.Unprotected([]disk.Device{a, b, other}, protected); err != nil || len(got) != 1 ||
		got[0].Path != "/dev/sdc" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := disk.Choose([]disk.Device{a, b}, rule(t, "path=/dev/sdb"), protected); err == nil {
		t.Errorf("chose %s", got)
	}
	a.InUse = []string{"/"}
	if got, err := disk.Choose([]disk.Device{a, b}, disk.Rule{}, nil); err == nil {
		t.Errorf("chose %s beside its path in use", got)
	}
	// Namespaces of one drive differ in their WWNs.
	a.WWN, b.WWN = "eui.1", "eui.2"
	if got, err := disk.Choose([]disk.Device{a, b}, disk.Rule{}, nil); err != nil || got.Path != "/dev/sdb" {
		t.Errorf("%s, %v", got, err)
	}
}
