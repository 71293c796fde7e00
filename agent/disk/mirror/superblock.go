package mirror

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"time"
)

// Layout of a superblock of version 1.0: mdp_superblock_1 of the kernel's include/uapi/linux/raid/md_p.h. It stands
// between 8 and 12 KiB before the end of the disk, so that the disk begins as the mirror does.
const (
	magic          = 0xa92b4efc
	superblockSize = 4096
	fixedSize      = 256 // before the list of roles
	roles          = 128 // entries of that list, as mdadm makes them
	spareRole      = 0xffff
	sectorSize     = 512 // of all numbers in it, whatever the disk has
	allSectors     = ^uint64(0)
)

// Superblock is the metadata by which a disk is one of two of a mirror.
type Superblock struct {
	// Set is the mirror's UUID, Disk that of this disk in it.
	Set, Disk [16]byte
	// Name is what the mirror is called, at most 32 bytes.
	Name string
	// Number is 0 or 1.
	Number int
	// Size is that of the mirror, DiskSize that of the disk, in bytes.
	Size, DiskSize int64
	// Made is when, to the second.
	Made time.Time
}

// superblockAt is where the superblock of a disk begins, as the kernel's super_1_load computes it.
func superblockAt(diskSize int64) int64 {
	sectors := diskSize/sectorSize - 16
	return sectors / 8 * 8 * sectorSize
}

// Encode returns the superblock of a mirror whose disks are in step, superblockSize bytes.
func (s Superblock) Encode() []byte {
	b := make([]byte, superblockSize)
	le := binary.LittleEndian
	le.PutUint32(b[0x00:], magic)
	le.PutUint32(b[0x04:], 1)
	copy(b[0x10:0x20], s.Set[:])
	copy(b[0x20:0x40], s.Name)
	le.PutUint64(b[0x40:], uint64(s.Made.Unix()))
	le.PutUint32(b[0x48:], 1) // level
	le.PutUint64(b[0x50:], uint64(s.Size/sectorSize))
	le.PutUint32(b[0x5c:], 2) // disks
	le.PutUint64(b[0x88:], uint64(s.Size/sectorSize))
	le.PutUint64(b[0x90:], uint64(superblockAt(s.DiskSize)/sectorSize))
	le.PutUint32(b[0xa0:], uint32(s.Number))
	copy(b[0xa8:0xb8], s.Disk[:])
	le.PutUint64(b[0xc0:], uint64(s.Made.Unix()))
	le.PutUint64(b[0xc8:], 1)          // events
	le.PutUint64(b[0xd0:], allSectors) // as far as the disks are in step
	le.PutUint32(b[0xdc:], roles)
	for i := range roles {
		role := uint16(spareRole)
		if i < 2 {
			role = uint16(i)
		}
		le.PutUint16(b[fixedSize+2*i:], role)
	}
	le.PutUint32(b[0xd8:], checksum(b))
	return b
}

// checksum is the kernel's calc_sb_1_csum: the sum of all words as far as the list of roles goes, its own being zero.
func checksum(b []byte) uint32 {
	var sum uint64
	for at := 0; at < fixedSize+2*roles; at += 4 {
		if at != 0xd8 {
			sum += uint64(binary.LittleEndian.Uint32(b[at:]))
		}
	}
	return uint32(sum) + uint32(sum>>32)
}

// ErrNoMirror is returned when a disk has no superblock of a mirror where one would be.
var ErrNoMirror = errors.New("the disk is none of a mirror")

// sameMirror compares two superblocks: they are of one mirror of this size, and of different disks.
func sameMirror(a, b []byte, size int64) error {
	le := binary.LittleEndian
	for i, s := range [][]byte{a, b} {
		switch {
		case le.Uint32(s) != magic || le.Uint32(s[0xdc:]) != roles || checksum(s) != le.Uint32(s[0xd8:]):
			return fmt.Errorf("disk %d: %w", i+1, ErrNoMirror)
		case le.Uint32(s[0xa0:]) != uint32(i) || le.Uint64(s[0x50:]) != uint64(size/sectorSize):
			return fmt.Errorf("disk %d: %w: it has another place in one, or of another size", i+1, ErrNoMirror)
		}
	}
	if !bytes.Equal(a[0x10:0x20], b[0x10:0x20]) {
		return fmt.Errorf("the disks are of two mirrors: %w", ErrNoMirror)
	}
	return nil
}
