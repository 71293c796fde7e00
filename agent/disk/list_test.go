package disk_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	sysdisk "github.com/ingot-metal/ingot/agent/disk"
	"github.com/ingot-metal/ingot/internal/disk"
)

// tree builds /proc, /sys and /dev as a machine shows them. A value of "-> x" makes a symbolic link to x.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, ok := strings.CutPrefix(content, "-> "); ok && err == nil {
			err = os.Symlink(target, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func machine() map[string]string {
	return map[string]string{
		"proc/self/mountinfo": "27 1 8:1 / / rw shared:1 - ext4 /dev/root rw\n30 27 0:40 / /data rw - btrfs /dev/sdb " +
			"rw\nrubbish\n",
		"proc/swaps": "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n",

		"sys/block/sda/size": "2048\n", "sys/block/sda/device/model": "DISK A  ",
		"sys/block/sda/device/vpd_pg80": "\x00\x80\x00\x04 S-A",
		"sys/block/sda/device/wwid":     "naa.5000\n", "sys/block/sda/queue/rotational": "1\n", "sys/block/sda/dev": "8:0\n",
		"sys/block/sda/queue/logical_block_size": "4096\n", "sys/block/sda/queue/discard_max_bytes": "0\n",
		"sys/block/sda/sda1/partition": "1", "sys/block/sda/sda1/dev": "8:1\n", "sys/block/sda/sda2/partition": "2",
		"sys/block/sda/sda2/dev": "8:2",

		"sys/block/sdb/size": "4096", "sys/block/sdb/device/x": "", "sys/block/sdb/dev": "8:16",
		"sys/block/sdb/holders/dm-0/x": "",
		"sys/block/sdc/size":           "4096", "sys/block/sdc/device/x": "", "sys/block/sdc/removable": "1",
		"sys/block/sdc/ro":   "1",
		"sys/block/vda/size": "8192", "sys/block/vda/serial": "virt-1\x00", "sys/block/vda/device/x": "",
		"sys/block/vda/queue/discard_max_bytes": "4096",
		"sys/block/nvme0n1/size":                "16", "sys/block/nvme0n1/device/serial": " N1 ",
		"sys/block/nvme0n1/wwid": "eui.01",
		"sys/block/loop0/size":   "8", "sys/block/sr0/device/x": "", "sys/block/dm-0/size": "1",

		"dev/disk/by-id/virtio-virt-1": "-> ../../vda", "dev/disk/by-path/pci-0": "-> ../../vda",
		"dev/disk/by-uuid/u": "-> ../../sda1",
	}
}

func TestListReadsSysfs(t *testing.T) {
	t.Parallel()
	got, err := sysdisk.List(tree(t, machine()))
	if err != nil {
		t.Fatal(err)
	}
	want := []disk.Device{
		{Name: "nvme0n1", Path: "/dev/nvme0n1", Links: []string{"/dev/disk/by-id/nvme-eui.01"}, Serial: "N1", WWN: "eui.01",
			Size: 8192, Sector: 512, Transport: "nvme"},
		{
			Name: "sda", Path: "/dev/sda", Serial: "S-A", WWN: "naa.5000", Model: "DISK A", Size: 1 << 20, Sector: 4096,
			Rotational: true,
			Links:      []string{"/dev/disk/by-id/scsi-35000", "/dev/disk/by-id/wwn-0x5000"},
			Partitions: []string{"sda1", "sda2"}, InUse: []string{"/", "swap"},
		},
		{Name: "sdb", Path: "/dev/sdb", Size: 2 << 20, Sector: 512, InUse: []string{"/data", "dm-0"}},
		{Name: "sdc", Path: "/dev/sdc", Size: 2 << 20, Sector: 512, Removable: true, ReadOnly: true},
		{
			Name: "vda", Path: "/dev/vda", Links: []string{"/dev/disk/by-id/virtio-virt-1", "/dev/disk/by-path/pci-0"},
			Serial: "virt-1", Size: 4 << 20, Sector: 512, Discard: true,
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	chosen, err := disk.Choose(got, disk.Rule{}, nil)
	if err == nil {
		t.Errorf("chose %s of two", chosen)
	}
}

func TestListFailsWithoutWhatItNeeds(t *testing.T) {
	t.Parallel()
	for _, gone := range []string{"sys/block", "proc/self/mountinfo"} {
		files := machine()
		for name := range files {
			if strings.HasPrefix(name, gone) {
				delete(files, name)
			}
		}
		if got, err := sysdisk.List(tree(t, files)); err == nil {
			t.Errorf("without %s: %v", gone, got)
		}
	}
}

// This machine has a root disk that must never be chosen.
func TestRootDiskIsInUse(t *testing.T) {
	t.Parallel()
	all, err := sysdisk.List("/")
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		for line := range strings.Lines(string(mounts)) {
			if f := strings.Fields(line); len(f) > 5 && f[4] == "/" && strings.Contains(line, " "+d.Path+" ") &&
				d.Unfit() == "" {
				t.Errorf("%s holds / and could be chosen", d)
			}
		}
	}
}
