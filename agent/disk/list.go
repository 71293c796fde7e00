package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ingot-metal/ingot/internal/disk"
)

// List finds the disks of the machine whose /sys, /proc and /dev are below root ("/" for this one), by name.
// Serial numbers and partitions that cannot be read are left out; no sysfs is an error.
func List(root string) ([]disk.Device, error) {
	s := scanner{root: root}
	links, err := s.links()
	if err != nil {
		return nil, err
	}
	uses, err := s.uses()
	if err != nil {
		return nil, err
	}
	return s.scan(func(d *disk.Device) {
		d.Links = union(links[d.Name], s.byID(*d))
		d.InUse = s.inUse(*d, uses)
	})
}

// Attached finds the disks as List does, from sysfs alone: Links and InUse are empty.
func Attached(root string) ([]disk.Device, error) {
	return scanner{root: root}.scan(func(*disk.Device) {})
}

// scan reads every whole disk once, whatever the number of paths to it, and lets more be said of each path.
func (s scanner) scan(more func(*disk.Device)) ([]disk.Device, error) {
	entries, err := os.ReadDir(s.path("sys/block"))
	if err != nil {
		return nil, fmt.Errorf("list block devices: %w", err)
	}
	var out []disk.Device
	for _, e := range entries {
		name := e.Name()
		if !s.exists("sys/block/"+name+"/device") || noDisk.MatchString(name) {
			continue // virtual, or no disk
		}
		if s.hidden(name) {
			continue
		}
		d := s.device(name)
		more(&d)
		out = append(out, d)
	}
	return foldPaths(out), nil
}

// noDisk are optical drives, floppies, and flash that holds firmware (mtdblock); and of an eMMC the partitions that its
// firmware boots from, or that take authenticated writes alone: they are areas of a disk that is listed itself (Linux,
// drivers/mmc/core/block.c).
var noDisk = regexp.MustCompile(`^(sr\d|fd\d|mtdblock|ubiblock|mmcblk\d+(boot\d+|rpmb)$)`)

type scanner struct{ root string }

func (s scanner) path(rel string) string { return filepath.Join(s.root, rel) }

func (s scanner) exists(rel string) bool {
	_, err := os.Stat(s.path(rel))
	return err == nil
}

// text is a file's content without surrounding space and NULs, "" if it cannot be read.
func (s scanner) text(rel string) string {
	b, err := os.ReadFile(s.path(rel))
	if err != nil {
		return ""
	}
	return strings.Trim(string(b), " \t\r\n\x00")
}

// mostPage bounds a page of a disk's data, in bytes.
const mostPage = 4096

// raw is the beginning of a file's content, nil if it cannot be read. A disk has written it: of it nothing is sure.
func (s scanner) raw(rel string) []byte {
	f, err := os.Open(s.path(rel))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // nothing was written to it
	b, err := io.ReadAll(io.LimitReader(f, mostPage))
	if err != nil {
		return nil
	}
	return b
}

func (s scanner) number(rel string) int64 {
	n, err := strconv.ParseInt(s.text(rel), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (s scanner) first(rels ...string) string {
	for _, rel := range rels {
		if t := s.text(rel); t != "" {
			return t
		}
	}
	return ""
}

func (s scanner) device(name string) disk.Device {
	dir := "sys/block/" + name + "/"
	d := disk.Device{
		Name: name, Path: "/dev/" + strings.ReplaceAll(name, "!", "/"),
		Serial: s.serial(dir), WWN: s.wwn(dir),
		Model:      s.text(dir + "device/model"),
		Size:       s.number(dir+"size") * 512, // sysfs counts sectors of 512 bytes whatever the disk's are
		Sector:     int(max(s.number(dir+"queue/logical_block_size"), 512)),
		Rotational: s.text(dir+"queue/rotational") == "1", Removable: s.text(dir+"removable") == "1",
		ReadOnly: s.text(dir+"ro") == "1", Discard: s.number(dir+"queue/discard_max_bytes") > 0,
		Partitions: s.partitions(name), Subsystem: s.text(dir + "device/subsysnqn"), Seqs: s.seqs(dir),
		Transport: transport(s.resolved("sys/block/" + name)), Firmware: s.first(dir+"device/firmware_rev", dir+"device/rev"),
	}
	if id := s.identify(name); id != nil {
		d.Model, d.Firmware = cmp.Or(swapped(id[54:94]), d.Model), cmp.Or(swapped(id[46:54]), d.Firmware)
	}
	return d
}

// resolved is where a path of links ends, "" if it ends nowhere.
func (s scanner) resolved(rel string) string {
	p, err := filepath.EvalSymlinks(s.path(rel))
	if err != nil {
		return ""
	}
	return p
}

// transport reads how a disk is attached from its place in the device tree.
func transport(sysPath string) string {
	for _, t := range []struct{ part, name string }{
		{"/usb", "usb"}, {"/nvme", "nvme"}, {"/ata", "ata"}, {"/virtio", "virtio"}, {"/mmc", "mmc"}, {"/host", "scsi"},
	} {
		if strings.Contains(sysPath, t.part) {
			return t.name
		}
	}
	return ""
}

func (s scanner) seqs(dir string) []uint64 {
	if n := s.number(dir + "diskseq"); n > 0 {
		return []uint64{uint64(n)}
	}
	return nil
}

// serial asks virtio, NVMe and, for SCSI and ATA, the unit serial number page (SPC-5, page 80h: four bytes of header,
// then text).
func (s scanner) serial(dir string) string {
	if t := s.first(dir+"serial", dir+"device/serial"); t != "" {
		return t
	}
	page := s.raw(dir + "device/vpd_pg80")
	if len(page) < 4 {
		return ""
	}
	return strings.Trim(string(page[4:]), " \x00")
}

// wwn leaves out one of zeros, which belongs to no disk.
func (s scanner) wwn(dir string) string {
	for _, file := range []string{"wwid", "device/wwid", "device/wwn"} {
		if t := s.text(dir + file); strings.Trim(t[strings.LastIndexByte(t, '.')+1:], "0-x") != "" {
			return t
		}
	}
	return ""
}

func (s scanner) partitions(name string) []string {
	entries, err := os.ReadDir(s.path("sys/block/" + name))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if s.exists("sys/block/" + name + "/" + e.Name() + "/partition") {
			out = append(out, e.Name())
		}
	}
	return out
}

// links returns the names below /dev/disk, by kernel name. A system without udev has none.
func (s scanner) links() (map[string][]string, error) {
	out := map[string][]string{}
	files, err := filepath.Glob(s.path("dev/disk/by-*/*"))
	if err != nil {
		return nil, fmt.Errorf("list names of disks: %w", err)
	}
	for _, file := range files {
		target, err := os.Readlink(file)
		if err != nil {
			continue // no link, or gone since
		}
		rel, err := filepath.Rel(filepath.Clean(s.root), file)
		if err != nil {
			return nil, fmt.Errorf("list names of disks: %w", err)
		}
		name := filepath.Base(target)
		out[name] = append(out[name], "/"+rel)
	}
	for _, l := range out {
		slices.Sort(l)
	}
	return out, nil
}

// uses returns the mount points by device number, and the swaps by path.
func (s scanner) uses() (map[string][]string, error) {
	out := map[string][]string{}
	mounts, err := os.ReadFile(s.path("proc/self/mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("read what is mounted: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		// proc_pid_mountinfo(5): id, parent, major:minor, root, mount point, …, "-", type, source.
		f := strings.Fields(line)
		dash := slices.Index(f, "-")
		if dash < 6 || len(f) < dash+3 {
			continue
		}
		out[f[2]] = append(out[f[2]], f[4])
		// btrfs and its like show a device number of their own.
		if src := f[dash+2]; strings.HasPrefix(src, "/dev/") {
			out[src] = append(out[src], f[4])
		}
	}
	swaps, err := os.ReadFile(s.path("proc/swaps"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read what is swapped on: %w", err)
	}
	for line := range strings.Lines(string(swaps)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[0], "/dev/") {
			out[f[0]] = append(out[f[0]], "swap")
		}
	}
	return out, nil
}

// inUse looks at the disk and its partitions: mounts, swap, and devices built on top.
func (s scanner) inUse(d disk.Device, uses map[string][]string) []string {
	var out []string
	look := func(name, dir string) {
		out = append(out, uses[s.text(dir+"/dev")]...)
		out = append(out, uses["/dev/"+name]...)
		holders, err := os.ReadDir(s.path(dir + "/holders"))
		if err != nil {
			return // no directory, no holders
		}
		for _, h := range holders {
			out = append(out, h.Name())
		}
	}
	look(d.Name, "sys/block/"+d.Name)
	for _, p := range d.Partitions {
		look(p, "sys/block/"+d.Name+"/"+p)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
