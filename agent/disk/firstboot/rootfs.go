package firstboot

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/ingot-metal/ingot/internal/gpt"
)

// Types of partitions (UEFI 2.10, 5.3.3; The Discoverable Partitions Specification).
var (
	rootTypes = []string{
		"4f68bce3-e8cd-4db1-96e7-fbcaf984b709", // root, amd64
		"b921b045-1df0-41c3-af44-4c6f280d3fae", // root, arm64
	}
	neverRoot = []string{
		"c12a7328-f81f-11d2-ba4b-00a0c93ec93b", // EFI system partition
		"21686148-6449-6e6f-744e-656564454649", // GRUB's core
		"0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", // swap
		"9e1a2d38-c612-4316-aa26-8b49521e5a8b", // PReP
	}
)

// Candidates are the partitions that may hold the root file system, the likeliest first: those of a root type, then all
// that are no boot loader's, the larger before the smaller.
func Candidates(all []gpt.Partition) []gpt.Partition {
	out := slices.DeleteFunc(slices.Clone(all), func(p gpt.Partition) bool {
		return slices.Contains(neverRoot, p.Type.String()) || p.Offset < gpt.HeadSize
	})
	slices.SortStableFunc(out, func(a, b gpt.Partition) int {
		ra, rb := slices.Contains(rootTypes, a.Type.String()), slices.Contains(rootTypes, b.Type.String())
		switch {
		case ra && !rb:
			return -1
		case rb && !ra:
			return 1
		}
		return int(max(min(b.Size-a.Size, 1), -1))
	})
	return out
}

// ProbeSize is how much of a partition's beginning FileSystem reads.
const ProbeSize = 68 << 10

// FileSystem returns the type of the file system or volume by its beginning: "ext4", "xfs", "btrfs", "vfat", "LVM2",
// "LUKS", or "" where it is none of them.
func FileSystem(b []byte) string {
	at := func(off int, magic string) bool {
		return len(b) >= off+len(magic) && bytes.Equal(b[off:off+len(magic)], []byte(magic))
	}
	switch {
	case len(b) >= 1082 && binary.LittleEndian.Uint16(b[1080:]) == 0xef53:
		return "ext4" // the driver takes ext2 and ext3 too
	case at(0, "XFSB"):
		return "xfs"
	case at(64<<10+64, "_BHRfS_M"):
		return "btrfs"
	case at(512+24, "LVM2 001"), at(24, "LVM2 001"):
		return "LVM2"
	case at(0, "LUKS\xba\xbe"):
		return "LUKS"
	case at(82, "FAT32   "), at(54, "FAT1"):
		return "vfat"
	}
	return ""
}

// Label returns the label of a file system by its beginning. It returns "" for one without a label and for a kind whose
// label FileSystem does not know. Sources: Linux, fs/ext4/ext4.h, s_volume_name; fs/xfs/libxfs/xfs_format.h, sb_fname;
// btrfs_tree.h, label.
func Label(b []byte) string {
	field := map[string]struct{ at, size int }{"ext4": {1024 + 120, 16}, "xfs": {108, 12}, "btrfs": {64<<10 + 299, 256}}
	f, known := field[FileSystem(b)]
	if !known || len(b) < f.at+f.size {
		return ""
	}
	name, _, _ := bytes.Cut(b[f.at:f.at+f.size], []byte{0})
	return string(name)
}

// Subtrees are where the root of a system may lie in a file system: btrfs shows its subvolumes as directories.
func Subtrees(fileSystem string) []string {
	if fileSystem == "btrfs" {
		return []string{".", "root", "@", "@/.snapshots/1/snapshot", "@rootfs"}
	}
	return []string{"."}
}
