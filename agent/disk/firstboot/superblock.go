package firstboot

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
)

// Kernel is what decides whether a file system can be mounted for writing.
type Kernel struct {
	// Major and Minor are those of its release, such as 6 and 12; 0 is unknown, and takes every feature that there is.
	Major, Minor int
	// Page is the size of a page in bytes.
	Page int
	// Casefold reports that ext4 was built with Unicode (/sys/fs/ext4/features/casefold).
	Casefold bool
}

func (k Kernel) has(f feature) bool {
	if f.never || f.bit == ext4Casefold && f.name == "casefold" && !k.Casefold {
		return false
	}
	return k.Major == 0 || cmp.Or(cmp.Compare(k.Major, f.major), cmp.Compare(k.Minor, f.minor)) >= 0
}

// feature is a bit of a superblock, and the first release of Linux that mounts it for writing.
type feature struct {
	bit          uint64
	name         string
	major, minor int
	never        bool
}

const ext4Casefold = 0x20000

// Of Linux, fs/ext4/ext4.h: EXT4_FEATURE_INCOMPAT_SUPP and EXT4_FEATURE_RO_COMPAT_SUPP. The names are those of mke2fs.
var (
	ext4Incompat = []feature{
		{bit: 0x1, name: "compression", never: true}, {bit: 0x2, name: "filetype"}, {bit: 0x4, name: "needs_recovery"},
		{bit: 0x8, name: "journal_dev", never: true}, {bit: 0x10, name: "meta_bg"}, {bit: 0x40, name: "extent"},
		{bit: 0x80, name: "64bit"}, {bit: 0x100, name: "mmp"}, {bit: 0x200, name: "flex_bg"},
		{bit: 0x400, name: "ea_inode", major: 4, minor: 13}, {bit: 0x1000, name: "dirdata", never: true},
		{bit: 0x2000, name: "metadata_csum_seed", major: 4, minor: 4}, {bit: 0x4000, name: "large_dir", major: 4, minor: 13},
		{bit: 0x8000, name: "inline_data", major: 3, minor: 8}, {bit: 0x10000, name: "encrypt", major: 4, minor: 1},
		{bit: ext4Casefold, name: "casefold", major: 5, minor: 2},
	}
	ext4ReadOnly = []feature{
		{bit: 0x1, name: "sparse_super"}, {bit: 0x2, name: "large_file"}, {bit: 0x4, name: "btree_dir"},
		{bit: 0x8, name: "huge_file"}, {bit: 0x10, name: "uninit_bg"}, {bit: 0x20, name: "dir_nlink"},
		{bit: 0x40, name: "extra_isize"}, {bit: 0x100, name: "quota", major: 3, minor: 6},
		{bit: 0x200, name: "bigalloc", major: 3, minor: 2}, {bit: 0x400, name: "metadata_csum", major: 3, minor: 6},
		{bit: 0x1000, name: "read-only", never: true}, {bit: 0x2000, name: "project", major: 4, minor: 5},
		{bit: 0x4000, name: "shared_blocks", never: true}, {bit: 0x8000, name: "verity", major: 5, minor: 4},
		{bit: 0x10000, name: "orphan_present", major: 5, minor: 16},
	}
	// Of fs/xfs/libxfs/xfs_format.h: XFS_SB_FEAT_INCOMPAT_ALL and XFS_SB_FEAT_RO_COMPAT_ALL.
	xfsIncompat = []feature{
		{bit: 0x1, name: "ftype"}, {bit: 0x2, name: "sparse inodes", major: 4, minor: 2},
		{bit: 0x4, name: "meta_uuid", major: 4, minor: 3}, {bit: 0x8, name: "bigtime", major: 5, minor: 10},
		{bit: 0x10, name: "needsrepair", never: true}, {bit: 0x20, name: "nrext64", major: 5, minor: 19},
		{bit: 0x40, name: "exchange", major: 6, minor: 10}, {bit: 0x80, name: "parent", major: 6, minor: 10},
		{bit: 0x100, name: "metadir", major: 6, minor: 13},
	}
	xfsReadOnly = []feature{
		{bit: 0x1, name: "finobt"}, {bit: 0x2, name: "rmapbt", major: 4, minor: 8},
		{bit: 0x4, name: "reflink", major: 4, minor: 9}, {bit: 0x8, name: "inobtcount", major: 5, minor: 10},
	}
	// Of fs/btrfs/fs.h: BTRFS_FEATURE_INCOMPAT_SUPP and BTRFS_FEATURE_COMPAT_RO_SUPP.
	btrfsIncompat = []feature{
		{bit: 0x1, name: "mixed_backref"}, {bit: 0x2, name: "default_subvol"}, {bit: 0x4, name: "mixed_groups"},
		{bit: 0x8, name: "compress_lzo"}, {bit: 0x10, name: "compress_zstd", major: 4, minor: 14},
		{bit: 0x20, name: "big_metadata"}, {bit: 0x40, name: "extended_iref"}, {bit: 0x80, name: "raid56"},
		{bit: 0x100, name: "skinny_metadata"}, {bit: 0x200, name: "no_holes"},
		{bit: 0x400, name: "metadata_uuid", major: 5, minor: 0}, {bit: 0x800, name: "raid1c34", major: 5, minor: 5},
		{bit: 0x1000, name: "zoned", major: 5, minor: 12}, {bit: 0x10000, name: "simple_quota", major: 6, minor: 7},
	}
	btrfsReadOnly = []feature{
		{
			bit:   0x1,
			name:  "free_space_tree",
			major: 4,
			minor: 9,
		},
		{bit: 0x2, name: "free_space_tree_valid", major: 4, minor: 9},
		{bit: 0x4, name: "verity", major: 5, minor: 15},
		{bit: 0x8, name: "block_group_tree", major: 6, minor: 1},
	}
)

// lacking names the features that are set and that the kernel does not mount.
func (k Kernel) lacking(set uint64, known []feature) (names []string) {
	for bit := uint64(1); bit != 0; bit <<= 1 {
		if set&bit == 0 {
			continue
		}
		i := slices.IndexFunc(known, func(f feature) bool { return f.bit == bit })
		switch {
		case i < 0:
			names = append(names, fmt.Sprintf("0x%x", bit))
		case !k.has(known[i]):
			names = append(names, known[i].name)
		}
	}
	return names
}

// Refuses returns why the kernel would refuse to mount a partition's file system for writing. It returns "" when it
// would mount it, or when the partition holds no file system. b is the beginning of the partition, ProbeSize bytes;
// size is the partition's, sector the disk's, in bytes.
func (k Kernel) Refuses(b []byte, size int64, sector int) string {
	if len(b) < ProbeSize {
		return ""
	}
	switch FileSystem(b) {
	case "ext4":
		return k.ext4(b[1024:2048], size, sector)
	case "xfs":
		return k.xfs(b[:512], size, sector)
	case "btrfs":
		return k.btrfs(b[64<<10:68<<10], size)
	}
	return ""
}

// judged puts a finding of each kind into words.
func (k Kernel) judged(kind string, block, sector int64, bytes uint64, size int64, lacking []string) string {
	switch {
	case block < sector:
		return fmt.Sprintf("%s has blocks of %d bytes, and the disk's sectors have %d", kind, block, sector)
	case k.Page > 0 && block > int64(k.Page) && (kind == "ext4" || k.Major < 6 || k.Major == 6 && k.Minor < 12):
		return fmt.Sprintf("%s has blocks of %d bytes, and the kernel's pages have %d", kind, block, k.Page)
	case len(lacking) > 0:
		return fmt.Sprintf("%s has features that the kernel %d.%d does not mount for writing: %s", kind, k.Major, k.Minor,
			strings.Join(lacking, ", "))
	case bytes > uint64(size):
		return fmt.Sprintf("%s has %d bytes, and its partition %d", kind, bytes, size)
	}
	return ""
}

// ext4 reads struct ext4_super_block, which lies at byte 1024.
func (k Kernel) ext4(b []byte, size int64, sector int) string {
	le := binary.LittleEndian
	log, blocks := le.Uint32(b[24:]), uint64(le.Uint32(b[4:]))
	incompat, readOnly := le.Uint32(b[96:]), le.Uint32(b[100:])
	if log > 6 {
		return "ext4 has blocks of an impossible size"
	}
	if incompat&0x80 != 0 {
		blocks |= uint64(le.Uint32(b[336:])) << 32
	}
	if readOnly&0x400 != 0 && ^crc32.Checksum(b[:1020], crc32.MakeTable(crc32.Castagnoli)) != le.Uint32(b[1020:]) {
		return "the checksum of ext4's superblock is wrong"
	}
	block := int64(1024) << log
	if blocks > 1<<52 {
		blocks = 1 << 52
	}
	lacking := append(k.lacking(uint64(incompat), ext4Incompat), k.lacking(uint64(readOnly), ext4ReadOnly)...)
	return k.judged("ext4", block, int64(sector), blocks*uint64(block), size, lacking)
}

// xfs reads struct xfs_dsb. Versions before 5 have no sets of features that can be unknown.
func (k Kernel) xfs(b []byte, size int64, sector int) string {
	be := binary.BigEndian
	block, blocks, own := int64(be.Uint32(b[4:])), be.Uint64(b[8:]), int64(be.Uint16(b[102:]))
	if block < 512 || block > 64<<10 {
		return "xfs has blocks of an impossible size"
	}
	var lacking []string
	if be.Uint16(b[100:])&0xf == 5 {
		lacking = append(
			k.lacking(uint64(be.Uint32(b[216:])), xfsIncompat),
			k.lacking(uint64(be.Uint32(b[212:])), xfsReadOnly)...)
	}
	if own < int64(sector) {
		return fmt.Sprintf("xfs was made for sectors of %d bytes, and the disk's have %d", own, sector)
	}
	return k.judged("xfs", block, int64(sector), min(blocks, 1<<47)*uint64(block), size, lacking)
}

// btrfs reads struct btrfs_super_block, which lies at byte 65,536.
func (k Kernel) btrfs(b []byte, size int64) string {
	le := binary.LittleEndian
	if n := le.Uint64(b[136:]); n != 1 {
		return fmt.Sprintf("btrfs lies on %d devices", n)
	}
	lacking := append(k.lacking(le.Uint64(b[188:]), btrfsIncompat), k.lacking(le.Uint64(b[180:]), btrfsReadOnly)...)
	return k.judged("btrfs", 4096, 0, le.Uint64(b[112:]), size, lacking)
}
