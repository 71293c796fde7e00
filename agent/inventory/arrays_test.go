package inventory_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/ingot-metal/ingot/agent/inventory"
)

// md is the md directory of a device in sysfs, by the names of its files (Linux, Documentation/admin-guide/md.rst). A
// member is an empty file here, and a directory there.
type md map[string]string

// mirror has the files of a mirror of two disks, and the ones that differ.
func mirror(differs md) md {
	all := md{
		"level":            "raid1\n",
		"raid_disks":       "2\n",
		"degraded":         "0\n",
		"array_state":      "clean\n",
		"sync_action":      "idle\n",
		"metadata_version": "1.0\n",
		"dev-sda":          "",
		"dev-sdb":          "",
	}
	for name, text := range differs {
		all[name] = text
	}
	return all
}

func TestArrays(t *testing.T) {
	t.Parallel()
	lost := mirror(md{"degraded": "1\n", "array_state": "active\n"})
	delete(lost, "dev-sdb")
	rebuilt := mirror(md{"degraded": "1\n", "sync_action": "recover\n"})
	for name, c := range map[string]struct {
		files md
		want  []inventory.Array
		fault string
	}{
		"well": {mirror(nil), []inventory.Array{{Name: "md127", Level: "raid1", Disks: 2, Active: true,
			Members: []string{"sda", "sdb"}}}, ""},
		"being checked": {mirror(md{"sync_action": "check\n"}), []inventory.Array{{Name: "md127", Level: "raid1", Disks: 2,
			Active: true, Members: []string{"sda", "sdb"}}}, ""},
		"a disk is lost": {lost, []inventory.Array{{Name: "md127", Level: "raid1", Disks: 2, Missing: 1, Active: true,
			Members: []string{"sda"}}}, "md127 (raid1) lacks 1 of 2 disks"},
		"being rebuilt": {rebuilt, []inventory.Array{{Name: "md127", Level: "raid1", Disks: 2, Missing: 1, Active: true,
			Rebuilding: true, Members: []string{"sda", "sdb"}}}, "md127 (raid1) lacks 1 of 2 disks and is being rebuilt"},
		"growing": {mirror(md{"raid_disks": "3 (2)\n"}), []inventory.Array{{Name: "md127", Level: "raid1", Disks: 3,
			Active: true, Members: []string{"sda", "sdb"}}}, ""},
		"stripes": {md{"level": "raid0\n", "raid_disks": "2\n", "array_state": "clean\n", "dev-sda": "", "dev-sdb": ""},
			[]inventory.Array{{Name: "md127", Level: "raid0", Disks: 2, Active: true, Members: []string{"sda", "sdb"}}}, ""},
		"stripes that lost a disk": {
			md{"level": "raid0\n", "raid_disks": "2\n", "array_state": "broken\n", "dev-sda": "", "dev-sdb": ""},
			[]inventory.Array{{Name: "md127", Level: "raid0", Disks: 2, Members: []string{"sda", "sdb"}}},
			"md127 is not running"},
		"waits for its disks": {md{"level": "\n", "raid_disks": "\n", "array_state": "inactive\n", "dev-sda": ""},
			[]inventory.Array{{Name: "md127", Members: []string{"sda"}}}, "md127 is not running"},
		"a container": {md{"level": "container\n", "array_state": "inactive\n", "dev-sda": "", "dev-sdb": ""}, nil, ""},
		"stopped":     {md{"level": "\n", "array_state": "clear\n"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			dir := filepath.Join(root, "sys/block/md127/md")
			err := os.MkdirAll(dir, 0o755)
			for file, text := range c.files {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			got := inventory.Arrays(root)
			if !reflect.DeepEqual(got, c.want) {
				t.Fatalf("%+v, want %+v", got, c.want)
			}
			if len(got) > 0 && got[0].Fault() != c.fault {
				t.Errorf("at fault is %q, want %q", got[0].Fault(), c.fault)
			}
			doc := inventory.Collect(inventory.Config{Root: root})
			if len(doc.Arrays) != len(c.want) || len(doc.Disks) != 0 {
				t.Errorf("an inventory has the arrays %+v and the disks %+v", doc.Arrays, doc.Disks)
			}
		})
	}
}

// A disk that is lost is another inventory; what goes on with the same disks is none.
func TestHashOfArrays(t *testing.T) {
	t.Parallel()
	hash := func(a inventory.Array) string { return inventory.Document{Arrays: []inventory.Array{a}}.Hash() }
	well := inventory.Array{Name: "md0", Level: "raid1", Disks: 2, Active: true, Members: []string{"sda", "sdb"}}
	renamed, lost, rebuilt := well, well, well
	renamed.Members = []string{"sdb", "sdc"}
	lost.Missing = 1
	rebuilt.Missing, rebuilt.Rebuilding = 1, true
	if hash(renamed) != hash(well) || hash(lost) == hash(well) || hash(rebuilt) != hash(lost) {
		t.Errorf("hashes %s, renamed %s, lost %s, rebuilt %s", hash(well), hash(renamed), hash(lost), hash(rebuilt))
	}
}
