package disk_test

import (
	"slices"
	"testing"

	sysdisk "github.com/ingot-metal/ingot/agent/disk"
	"github.com/ingot-metal/ingot/internal/disk"
)

// TestPathsOfOneDiskAreOneDisk: three trees of sysfs. Dual-port NVMe with native multipath has the head nvme0n1 below
// nvme-subsys0 and hidden paths nvme0c0n1 and nvme0c1n1 (drivers/nvme/host/multipath.c). The others are the same with
// nvme_core.multipath=N, and a logical unit that two ports of an array show (drivers/scsi/scsi_sysfs.c).
func TestPathsOfOneDiskAreOneDisk(t *testing.T) {
	t.Parallel()
	mounts := map[string]string{"proc/self/mountinfo": ""}
	nvme := func(files map[string]string, name, hidden string) {
		dir := "sys/block/" + name + "/"
		files[dir+"size"], files[dir+"wwid"], files[dir+"hidden"] = "4096", "eui.0025385a11b2c3d4", hidden
		files[dir+"device/serial"], files[dir+"device/model"] = "S4X", "Dual Port"
		files[dir+"device/subsysnqn"] = "nqn.2014.08.org.nvmexpress:1"
	}
	scsi := func(files map[string]string, name, wwn, serial string) {
		dir := "sys/block/" + name + "/"
		files[dir+"size"], files[dir+"device/wwid"], files[dir+"device/model"] = "4096", wwn, "ARRAY"
		if serial != "" {
			files[dir+"device/vpd_pg80"] = "\x00\x80\x00\x04" + serial
		}
	}
	for name, c := range map[string]struct {
		fill  func(map[string]string)
		disks int
		paths []string
		use   []string
	}{
		"native multipath": {func(f map[string]string) {
			nvme(f, "nvme0n1", "0")
			nvme(f, "nvme0c0n1", "1")
			nvme(f, "nvme0c1n1", "1")
		}, 1, nil, nil},
		"NVMe without it": {func(f map[string]string) { nvme(f, "nvme0n1", "0"); nvme(f, "nvme1n1", "0") }, 1,
			[]string{"/dev/nvme1n1"}, nil},
		"two ports of an array": {func(f map[string]string) {
			scsi(f, "sda", "naa.60014", "LU1")
			scsi(f, "sdb", "naa.60014", "LU1")
		}, 1, []string{"/dev/sdb"}, nil},
		"one path is in use": {func(f map[string]string) {
			scsi(f, "sda", "naa.60014", "LU1")
			scsi(f, "sdb", "naa.60014", "LU1")
			f["sys/block/sdb/holders/dm-0/x"] = ""
		}, 1, []string{"/dev/sdb"}, []string{"dm-0"}},
		"two disks with one name": {func(f map[string]string) {
			scsi(f, "sda", "naa.5000", "A")
			scsi(f, "sdb", "naa.5000",
				"B")
		}, 2, nil, nil},
		"a name that is none": {func(f map[string]string) {
			scsi(f, "sda", "naa.0000", "A")
			scsi(f, "sdb", "naa.0000",
				"A")
		}, 2, nil, nil},
		"nothing but a name": {func(f map[string]string) { scsi(f, "sda", "naa.5000", ""); scsi(f, "sdb", "naa.5000", "") },
			2, nil, nil},
	} {
		files := map[string]string{"proc/self/mountinfo": mounts["proc/self/mountinfo"]}
		c.fill(files)
		got, err := sysdisk.List(tree(t, files))
		if err != nil || len(got) != c.disks || !slices.Equal(got[0].Paths, c.paths) || !slices.Equal(got[0].InUse, c.use) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		for _, p := range c.paths {
			if r, err := disk.ParseRule("path=" + p); err != nil || !r.Match(got[0]) {
				t.Errorf("%s: the rule for %s does not fit (%v)", name, p, err)
			}
		}
	}
}

// TestNamesByID: the names that udev would make, without udev. The examples are from real machines' listings of
// /dev/disk/by-id.
func TestNamesByID(t *testing.T) {
	t.Parallel()
	page := make([]byte, 572)
	put := func(word int, text string, size int) {
		b := []byte(text + string(slices.Repeat([]byte{' '}, size-len(text))))
		for i := 0; i < size; i += 2 {
			page[60+2*word+i], page[60+2*word+i+1] = b[i+1], b[i]
		}
	}
	put(10, "WD-WCC4E0123456", 20)
	put(27, "WDC WD40EFRX-68WT0N0", 40)
	files := map[string]string{
		"proc/self/mountinfo": "",
		"sys/block/sda/size":  "16", "sys/block/sda/device/wwid": "naa.50014ee2b5c1d2e3",
		"sys/block/sda/device/vpd_pg89": string(page),
		"sys/block/sda/device/model":    "WDC WD40EFRX-68W",
		"sys/block/sdb/size":            "16", "sys/block/sdb/device/wwid": "naa.600508b1001c3aa4",
		"sys/block/nvme0n1/size": "16", "sys/block/nvme0n1/wwid": "eui.0025385a11b2c3d4", "sys/block/nvme0n1/nsid": "1",
		"sys/block/nvme0n1/device/model": "Samsung SSD 970 EVO 500GB", "sys/block/nvme0n1/device/serial": "S466NX0M",
		"sys/block/vda/size": "16", "sys/block/vda/serial": "root", "sys/block/vda/device/x": "",
	}
	got, err := sysdisk.List(tree(t, files))
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"wwn-0x50014ee2b5c1d2e3": "sda", "ata-WDC_WD40EFRX-68WT0N0_WD-WCC4E0123456": "sda",
		"wwn-0x600508b1001c3aa4": "sdb", "scsi-3600508b1001c3aa4": "sdb",
		"nvme-eui.0025385a11b2c3d4": "nvme0n1", "nvme-Samsung_SSD_970_EVO_500GB_S466NX0M": "nvme0n1",
		"nvme-Samsung_SSD_970_EVO_500GB_S466NX0M_1": "nvme0n1", "virtio-root": "vda",
	} {
		r, err := disk.ParseRule("path=/dev/disk/by-id/" + id)
		if err != nil || !r.Names() {
			t.Fatalf("%s: %v", id, err)
		}
		if d, err := disk.Choose(got, r, nil); err != nil || d.Name != want {
			t.Errorf("%s is %s, want %s (%v)", id, d.Name, want, err)
		}
	}
}
