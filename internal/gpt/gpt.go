// Package gpt edits a GUID partition table in memory. From the first MiB of a disk it makes one with another partition,
// and the backup table for the disk's end. It reads and writes no disk.
//
// The table is that of the UEFI Specification 2.10, chapter 5. Boot code, attributes, names and the order and numbers
// of partitions stay as they are, because boot loaders depend on each of them.
package gpt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"unicode/utf16"
)

const (
	// HeadSize is how many bytes of a disk's beginning the functions of this package are given.
	HeadSize = 1 << 20
	// TailSize is how many bytes of its end they make.
	TailSize = 1 << 20

	align        = 1 << 20 // of a new partition
	minHeader    = 92
	nameBytes    = 72
	mbrEntry     = 446
	protective   = 0xee
	maxEntries   = 1024
	maxEntrySize = 1024
	maxBlock     = 1 << 46 // of 64 KiB, the largest sector, is what an int64 holds
)

// GUID is in the byte order of the disk: the first three fields little endian.
type GUID [16]byte

// String prints it as everybody does.
func (g GUID) String() string {
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", binary.LittleEndian.Uint32(g[0:]), binary.LittleEndian.Uint16(g[4:]),
		binary.LittleEndian.Uint16(g[6:]), g[8:10], g[10:])
}

// LinuxData is the type of a partition with a Linux file system (The Discoverable Partitions Specification).
var LinuxData = GUID{0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4}

// BasicData is the type of a partition with a file system that firmware and every system read, such as FAT.
var BasicData = GUID{0xa2, 0xa0, 0xd0, 0xeb, 0xe5, 0xb9, 0x33, 0x44, 0x87, 0xc0, 0x68, 0xb6, 0xb7, 0x26, 0x99, 0xc7}

// Errors of Parse and Add.
var (
	ErrNoTable = errors.New("no GUID partition table")
	ErrNoRoom  = errors.New("no room in the partition table")
	ErrExists  = errors.New("there is a partition of that name already")
)

// Partition is one entry. Offset and Size are bytes.
type Partition struct {
	Number       int // from 1
	Name         string
	Type, ID     GUID
	Offset, Size int64
	Attributes   uint64
}

// Table is a primary table that was found whole.
type Table struct {
	sector    int64
	header    []byte // of the primary, in the length of its own field
	entries   []byte
	entrySize int
}

// Parse reads the primary table from the first HeadSize bytes of a disk with the given sector size and checks both of
// its checksums.
func Parse(head []byte, sector int) (*Table, error) {
	if len(head) < HeadSize || sector < 512 || sector > 1<<16 || sector&(sector-1) != 0 {
		return nil, fmt.Errorf("%w: %d bytes with sectors of %d bytes to look in", ErrNoTable, len(head), sector)
	}
	h := head[sector : 2*sector]
	if string(h[:8]) != "EFI PART" {
		return nil, fmt.Errorf("%w at byte %d", ErrNoTable, sector)
	}
	size := int(binary.LittleEndian.Uint32(h[12:]))
	if size < minHeader || size > sector || headerSum(h[:size]) != binary.LittleEndian.Uint32(h[16:]) {
		return nil, fmt.Errorf("%w: the header is damaged", ErrNoTable)
	}
	t := &Table{sector: int64(sector), header: slices.Clone(h[:size])}
	if t.u64(24) != 1 {
		return nil, fmt.Errorf("%w: the header is not the primary one", ErrNoTable)
	}
	return t, t.readEntries(head)
}

func (t *Table) readEntries(head []byte) error {
	count, size := binary.LittleEndian.Uint32(t.header[80:]), binary.LittleEndian.Uint32(t.header[84:])
	at := t.u64(72)
	if count == 0 || count > maxEntries || size < 128 || size > maxEntrySize || size%128 != 0 || at < 2 || at > HeadSize {
		return fmt.Errorf("%w: %d entries of %d bytes at block %d", ErrNoTable, count, size, at)
	}
	from, to := int64(at)*t.sector, int64(at)*t.sector+int64(count)*int64(size)
	if to > HeadSize {
		return fmt.Errorf("%w: the entries end at byte %d", ErrNoTable, to)
	}
	t.entries, t.entrySize = slices.Clone(head[from:to]), int(size)
	if crc32.ChecksumIEEE(t.entries) != binary.LittleEndian.Uint32(t.header[88:]) {
		return fmt.Errorf("%w: the entries are damaged", ErrNoTable)
	}
	for i := range int(count) {
		e := t.entry(i)
		first, last := binary.LittleEndian.Uint64(e[32:]), binary.LittleEndian.Uint64(e[40:])
		if GUID(e[:16]) != (GUID{}) && (first > last || last >= maxBlock) {
			return fmt.Errorf("%w: partition %d is from block %d to %d", ErrNoTable, i+1, first, last)
		}
	}
	return nil
}

// headerSum is the CRC-32 of the header with its own checksum as zero.
func headerSum(h []byte) uint32 {
	c := slices.Clone(h)
	binary.LittleEndian.PutUint32(c[16:], 0)
	return crc32.ChecksumIEEE(c)
}

func (t *Table) u64(at int) uint64       { return binary.LittleEndian.Uint64(t.header[at:]) }
func (t *Table) putU64(at int, v uint64) { binary.LittleEndian.PutUint64(t.header[at:], v) }

func (t *Table) entry(i int) []byte { return t.entries[i*t.entrySize : (i+1)*t.entrySize] }

// Partitions are the entries in use, in the order of the table.
func (t *Table) Partitions() []Partition {
	var out []Partition
	for i := range len(t.entries) / t.entrySize {
		e := t.entry(i)
		p := Partition{Number: i + 1, Type: GUID(e[0:16]), ID: GUID(e[16:32])}
		if p.Type == (GUID{}) {
			continue
		}
		first, last := binary.LittleEndian.Uint64(e[32:]), binary.LittleEndian.Uint64(e[40:])
		p.Offset, p.Size = int64(first)*t.sector, int64(last-first+1)*t.sector
		p.Attributes, p.Name = binary.LittleEndian.Uint64(e[48:]), decodeName(e[56:56+nameBytes])
		out = append(out, p)
	}
	return out
}

// DiskID is the identity of the table.
func (t *Table) DiskID() GUID { return GUID(t.header[56:72]) }

// Place returns the last MiB-aligned place of the given size before the last TailSize bytes of a disk of diskSize
// bytes.
func Place(diskSize, size int64) (offset int64) {
	return (diskSize - TailSize - size) / align * align
}

// Add puts a partition into the first free entry. It fails when its name is taken, when it overlaps another, or when
// there is no free entry.
func (t *Table) Add(p Partition) (number int, err error) {
	for _, other := range t.Partitions() {
		if other.Name == p.Name {
			return 0, fmt.Errorf("%w: %s, number %d", ErrExists, p.Name, other.Number)
		}
		if p.Offset < other.Offset+other.Size && other.Offset < p.Offset+p.Size {
			return 0, fmt.Errorf("%w: partition %d ends at byte %d, behind byte %d", ErrNoRoom, other.Number,
				other.Offset+other.Size, p.Offset)
		}
	}
	for i := range len(t.entries) / t.entrySize {
		if GUID(t.entry(i)[:16]) == (GUID{}) {
			t.putEntry(i, p)
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("%w: all %d entries are in use", ErrNoRoom, len(t.entries)/t.entrySize)
}

// Resize changes the size of a partition, whose beginning stays. It fails when it would overlap another.
func (t *Table) Resize(number int, size int64) error {
	all := t.Partitions()
	i := slices.IndexFunc(all, func(p Partition) bool { return p.Number == number })
	if i < 0 || size < t.sector || size%t.sector != 0 {
		return fmt.Errorf("resize partition %d to %d bytes: no such partition, or no whole sectors", number, size)
	}
	p := all[i]
	p.Size = size
	for _, other := range all {
		if other.Number != number && p.Offset < other.Offset+other.Size && other.Offset < p.Offset+p.Size {
			return fmt.Errorf("%w: partition %d would reach into partition %d", ErrNoRoom, number, other.Number)
		}
	}
	binary.LittleEndian.PutUint64(t.entry(number - 1)[40:], uint64((p.Offset+p.Size)/t.sector-1))
	return nil
}

// Room returns how large a partition can become: up to the next one, in whole MiB.
func Room(all []Partition, p Partition) int64 {
	end := int64(-1)
	for _, other := range all {
		if other.Offset > p.Offset && (end < 0 || other.Offset < end) {
			end = other.Offset
		}
	}
	if end < 0 {
		return p.Size
	}
	return max(p.Size, end/align*align-p.Offset)
}

func (t *Table) putEntry(i int, p Partition) {
	e := t.entry(i)
	clear(e)
	copy(e[0:16], p.Type[:])
	copy(e[16:32], p.ID[:])
	binary.LittleEndian.PutUint64(e[32:], uint64(p.Offset/t.sector))
	binary.LittleEndian.PutUint64(e[40:], uint64((p.Offset+p.Size)/t.sector-1))
	binary.LittleEndian.PutUint64(e[48:], p.Attributes)
	copy(e[56:56+nameBytes], encodeName(p.Name))
}

// Fit makes the table that of a disk of diskSize bytes, and puts it into head, a copy of what Parse was given. tail is
// what belongs into the last TailSize bytes: zeros with the backup table at their end.
func (t *Table) Fit(head []byte, diskSize int64) (tail []byte, err error) {
	last := uint64(diskSize/t.sector) - 1
	entryBlocks := (uint64(len(t.entries)) + uint64(t.sector) - 1) / uint64(t.sector)
	backup := last - entryBlocks
	for _, p := range t.Partitions() {
		if uint64((p.Offset+p.Size)/t.sector) > backup {
			return nil, fmt.Errorf("%w: partition %d ends at byte %d of %d", ErrNoRoom, p.Number, p.Offset+p.Size, diskSize)
		}
	}
	primary := t.u64(72)
	t.putU64(48, backup-1) // last usable
	binary.LittleEndian.PutUint32(t.header[88:], crc32.ChecksumIEEE(t.entries))

	t.seal(1, last, primary)
	copy(head[t.sector:], t.header)
	copy(head[int64(primary)*t.sector:], t.entries)
	growProtective(head, last)

	tail = make([]byte, TailSize)
	base := diskSize - TailSize
	t.seal(last, 1, backup)
	copy(tail[int64(last)*t.sector-base:], t.header)
	copy(tail[int64(backup)*t.sector-base:], t.entries)
	t.seal(1, last, primary)
	return tail, nil
}

// seal sets what differs between the two headers, and the checksum.
func (t *Table) seal(own, other, entries uint64) {
	t.putU64(24, own)
	t.putU64(32, other)
	t.putU64(72, entries)
	binary.LittleEndian.PutUint32(t.header[16:], headerSum(t.header))
}

// growProtective makes the protective entry of the MBR cover the disk. A hybrid MBR stays as it is: there the
// protective entry ends before the first of the others, which it must not overlap.
func growProtective(head []byte, last uint64) {
	for i := range 4 {
		if kind := head[mbrEntry+16*i+4]; kind != 0 && kind != protective {
			return
		}
	}
	for i := range 4 {
		e := head[mbrEntry+16*i : mbrEntry+16*i+16]
		if e[4] == protective && binary.LittleEndian.Uint32(e[8:]) == 1 {
			binary.LittleEndian.PutUint32(e[12:], uint32(min(last, 0xffffffff)))
		}
	}
}

func encodeName(s string) []byte {
	var b bytes.Buffer
	for _, u := range utf16.Encode([]rune(s)) {
		b.Write([]byte{byte(u), byte(u >> 8)})
	}
	return b.Bytes()[:min(b.Len(), nameBytes)]
}

func decodeName(b []byte) string {
	var u []uint16
	for i := 0; i+1 < len(b); i += 2 {
		c := binary.LittleEndian.Uint16(b[i:])
		if c == 0 {
			break
		}
		u = append(u, c)
	}
	return string(utf16.Decode(u))
}
