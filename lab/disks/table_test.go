package disks

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"unicode/utf16"
)

// table describes the partitions of an image or an old installation: see build.
type table struct {
	sector int
	disk   [16]byte // its GUID
	parts  []part
}

// part is one partition, in bytes.
type part struct {
	name     string
	id       [16]byte
	off, len int64
}

const entries, entrySize = 128, 128

// build puts protective MBR, primary and backup table on a disk of size bytes, as UEFI 2.10 has them (5.2.3, 5.3.2,
// 5.3.3).
func (t table) build(size int64, put func(b []byte, off int64)) {
	s := int64(t.sector)
	last := size/s - 1
	mbr := make([]byte, 512-446)
	mbr[4], mbr[510-446], mbr[511-446] = 0xee, 0x55, 0xaa
	binary.LittleEndian.PutUint32(mbr[8:], 1)
	binary.LittleEndian.PutUint32(mbr[12:], uint32(last))
	put(mbr, 446)
	list := make([]byte, entries*entrySize)
	for i, p := range t.parts {
		e := list[i*entrySize:]
		// The type of a Linux file system; no firmware of this test starts anything.
		copy(e, []byte{0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4})
		copy(e[16:], p.id[:])
		binary.LittleEndian.PutUint64(e[32:], uint64(p.off/s))
		binary.LittleEndian.PutUint64(e[40:], uint64((p.off+p.len)/s-1))
		for j, u := range utf16.Encode([]rune(p.name)) {
			binary.LittleEndian.PutUint16(e[56+2*j:], u)
		}
	}
	blocks := int64(len(list)) / s
	put(list, 2*s)
	put(list, (last-blocks)*s)
	put(t.header(1, last, 2, last-blocks-1, blocks, list), s)
	put(t.header(last, 1, last-blocks, last-blocks-1, blocks, list), last*s)
}

func (t table) header(own, other, at, usable, blocks int64, list []byte) []byte {
	h := make([]byte, 92)
	copy(h, "EFI PART")
	for off, v := range map[int]uint32{8: 0x10000, 12: 92, 80: entries, 84: entrySize, 88: crc32.ChecksumIEEE(list)} {
		binary.LittleEndian.PutUint32(h[off:], v)
	}
	for off, v := range map[int]int64{24: own, 32: other, 40: 2 + blocks, 48: usable, 72: at} {
		binary.LittleEndian.PutUint64(h[off:], uint64(v))
	}
	copy(h[56:], t.disk[:])
	binary.LittleEndian.PutUint32(h[16:], crc32.ChecksumIEEE(h))
	return h
}

// view reads a disk.
type view func(b []byte, off int64)

func (v view) get(off, n int64) []byte {
	b := make([]byte, n)
	v(b, off)
	return b
}

// found is a partition table on a disk.
type found struct {
	where string
	disk  [16]byte
	parts []part
}

// tablesOf finds what a firmware or a kernel could start from: an MBR with boot code or partitions, and GUID tables at
// both ends, in sectors of either size.
func tablesOf(v view, size int64) []found {
	var out []found
	mbr := v.get(0, 512)
	if mbr[510] == 0x55 && mbr[511] == 0xaa {
		out = append(out, found{where: "MBR"})
	}
	for _, s := range []int64{512, 4096} {
		for _, at := range []int64{1, size/s - 1} {
			if f, ok := headerAt(v, size, s, at); ok {
				out = append(out, f)
			}
		}
	}
	return out
}

func headerAt(v view, size, s, lba int64) (found, bool) {
	h := v.get(lba*s, 512)
	n := binary.LittleEndian.Uint32(h[12:])
	if string(h[:8]) != "EFI PART" || n < 92 || n > 512 {
		return found{}, false
	}
	sum := binary.LittleEndian.Uint32(h[16:])
	binary.LittleEndian.PutUint32(h[16:], 0)
	count, each := int64(binary.LittleEndian.Uint32(h[80:])), int64(binary.LittleEndian.Uint32(h[84:]))
	at := int64(binary.LittleEndian.Uint64(h[72:])) * s
	if crc32.ChecksumIEEE(h[:n]) != sum || int64(binary.LittleEndian.Uint64(h[24:])) != lba || count > 1024 ||
		each > 1024 || at < 0 ||
		at+count*each > size {
		return found{}, false
	}
	list := v.get(at, count*each)
	if crc32.ChecksumIEEE(list) != binary.LittleEndian.Uint32(h[88:]) {
		return found{}, false
	}
	f := found{where: map[bool]string{true: "primary", false: "backup"}[lba == 1], disk: [16]byte(h[56:72])}
	for i := int64(0); i < count; i++ {
		e := list[i*each:]
		if [16]byte(e[:16]) == [16]byte{} {
			continue
		}
		first, last := int64(binary.LittleEndian.Uint64(e[32:])), int64(binary.LittleEndian.Uint64(e[40:]))
		var name []uint16
		for j := 56; j < 128 && binary.LittleEndian.Uint16(e[j:]) != 0; j += 2 {
			name = append(name, binary.LittleEndian.Uint16(e[j:]))
		}
		f.parts = append(f.parts, part{name: string(utf16.Decode(name)), id: [16]byte(e[16:32]), off: first * s,
			len: (last - first + 1) * s})
	}
	return f, true
}

func guid(r *rand.Rand) (g [16]byte) {
	for i := range g {
		g[i] = byte(r.Uint32())
	}
	return g
}

// randomTable is the table of a disk of size bytes, with some partitions.
func randomTable(r *rand.Rand, size int64, sector int) table {
	t := table{sector: sector, disk: guid(r)}
	at := int64(1 << 20)
	if r.IntN(3) == 0 {
		at = 64 << 10 // a BIOS boot partition within the first MiB
	}
	for i := range 1 + r.IntN(4) {
		n := (size - at - 64<<10) / int64(sector) * int64(sector)
		if i > 0 || r.IntN(2) == 0 {
			n = min(n, (1+r.Int64N(24))*(64<<10))
		}
		if n < 64<<10 {
			break
		}
		t.parts = append(t.parts, part{name: string(rune('a' + i)), id: guid(r), off: at, len: n})
		at += n
	}
	return t
}

// randomImage is size bytes with boot code, partitions, data and holes.
func randomImage(r *rand.Rand, size int64, sector int) ([]byte, table) {
	b := make([]byte, size)
	fill(r, b[:440])
	t := randomTable(r, size, sector)
	for _, p := range t.parts {
		if r.IntN(4) > 0 {
			fill(r, b[p.off:p.off+p.len*int64(1+r.IntN(4))/4])
		}
	}
	t.build(size, func(p []byte, off int64) { copy(b[off:], p) })
	return b, t
}

func fill(r *rand.Rand, b []byte) {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], r.Uint64())
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails
}
