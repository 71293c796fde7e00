package rig

import (
	"encoding/binary"
	"hash/crc32"
)

// WholeDisk is the image of a disk of a size in bytes, with a GUID partition table and one partition (UEFI
// specification 2.10, 5.3).
func WholeDisk(size int) []byte {
	const sector = 512
	last := uint64(size/sector - 34)
	b := make([]byte, size)
	table, header := b[2*sector:2*sector+128*128], b[sector:sector+92]
	table[0], table[16] = 1, 1
	binary.LittleEndian.PutUint64(table[32:], 64)
	binary.LittleEndian.PutUint64(table[40:], last)
	copy(header, "EFI PART")
	for at, v := range map[int]uint32{8: 0x10000, 12: 92, 80: 128, 84: 128, 88: crc32.ChecksumIEEE(table)} {
		binary.LittleEndian.PutUint32(header[at:], v)
	}
	for at, v := range map[int]uint64{24: 1, 32: last + 33, 40: 34, 48: last, 72: 2} {
		binary.LittleEndian.PutUint64(header[at:], v)
	}
	binary.LittleEndian.PutUint32(header[16:], crc32.ChecksumIEEE(header))
	return b
}
