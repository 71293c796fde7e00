package disk

import (
	"regexp"
	"slices"

	"github.com/ingot-metal/ingot/internal/disk"
)

// nvmePath is the name of one path to a namespace below a multipath head: nvme0c1n1 is a path to nvme0n1
// (drivers/nvme/host/multipath.c, nvme_mpath_set_disk_name).
var nvmePath = regexp.MustCompile(`^nvme\d+c\d+n\d+$`)

// hidden reports whether a block device is only a path, which has no file under /dev
// (Documentation/ABI/stable/sysfs-block, hidden).
func (s scanner) hidden(name string) bool {
	return nvmePath.MatchString(name) || s.text("sys/block/"+name+"/hidden") == "1"
}

// foldPaths makes one device of the paths to one disk: dual-port drives and logical units of arrays are found once for
// each path where no multipath driver stands above them. Two disks that only share a name stay two: all that is known
// of them must be the same.
func foldPaths(all []disk.Device) []disk.Device {
	var out []disk.Device
	for _, d := range all {
		i := slices.IndexFunc(out, func(o disk.Device) bool { return samePaths(o, d) })
		if i < 0 {
			out = append(out, d)
			continue
		}
		o := &out[i]
		o.Paths, o.Seqs = append(o.Paths, d.Path), append(o.Seqs, d.Seqs...)
		o.Links = union(o.Links, d.Links)
		o.InUse = union(o.InUse, d.InUse)
		o.ReadOnly, o.Removable = o.ReadOnly || d.ReadOnly, o.Removable || d.Removable
	}
	return out
}

func samePaths(a, b disk.Device) bool {
	return a.WWN != "" && a.Serial != "" && a.WWN == b.WWN && a.Serial == b.Serial && a.Size == b.Size &&
		a.Sector == b.Sector &&
		a.Model == b.Model
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
