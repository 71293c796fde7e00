package inventory

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCases: every tree of testdata/cases, a line for each file or link below /sys, is read as in the .want file beside
// it.
func TestCases(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/cases/*.tree")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d trees, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(file, ".tree") + ".want")
		if err != nil {
			t.Errorf("%s has no .want beside it: %v", file, err)
		}
		entries := map[string]string{}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if link, target, ok := strings.Cut(line, " -> "); ok {
				entries[link] = "-> " + target
			} else if name, content, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, "#") {
				entries[name] = content + "\n"
			}
		}
		root := tree(t, entries)
		got := told(Collect(Config{Root: root})) + "cards that tell the machine: " +
			strings.Join(Identity(root).MACs, " ") + "\n"
		if got != string(want) {
			t.Errorf("%s:\n%swant\n%s", file, got, want)
		}
	}
}

func told(d Document) string {
	var b strings.Builder
	s := d.System
	fmt.Fprintf(&b, "system: vendor %q serial %q uuid %q board %q chassis %q asset %q\n", s.Vendor, s.Serial, s.UUID,
		s.BoardSerial, s.ChassisSerial, s.AssetTag)
	for _, k := range d.Disks {
		fmt.Fprintf(&b, "disk %s: serial %q wwn %q %d bytes %s\n", k.Name, k.Serial, k.WWN, k.SizeBytes, k.Transport)
	}
	for _, n := range d.NICs {
		fmt.Fprintf(&b, "nic %s: %s\n", n.Name, cmp.Or(n.MAC, "none"))
	}
	return b.String()
}
