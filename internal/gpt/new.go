package gpt

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// entryCount and entrySize are those of every table that is made anew: the least that the specification allows.
const (
	entryCount = 128
	entrySize  = 128
	version    = 0x00010000
)

// New makes an empty table with a protective MBR in head, which must be HeadSize zeros, for a disk with the given
// sector size. It is whole after Fit.
func New(head []byte, sector int, id GUID) *Table {
	le := binary.LittleEndian
	e := head[mbrEntry : mbrEntry+16]
	copy(e, []byte{0, 0, 2, 0, protective, 0xff, 0xff, 0xff})
	le.PutUint32(e[8:], 1)
	head[510], head[511] = 0x55, 0xaa

	h := make([]byte, minHeader)
	copy(h, "EFI PART")
	le.PutUint32(h[8:], version)
	le.PutUint32(h[12:], minHeader)
	blocks := (entryCount*entrySize + sector - 1) / sector
	le.PutUint64(h[40:], uint64(max(2+blocks, align/sector))) // the first usable block
	copy(h[56:72], id[:])
	le.PutUint64(h[72:], 2)
	le.PutUint32(h[80:], entryCount)
	le.PutUint32(h[84:], entrySize)
	return &Table{sector: int64(sector), header: h, entries: make([]byte, entryCount*entrySize), entrySize: entrySize}
}

// NewGUID makes a random one: version 4 of RFC 9562, in the byte order of the disk.
func NewGUID() (g GUID) {
	// crypto/rand.Read never fails; it ends the process when the kernel has no randomness.
	rand.Read(g[:])
	g[7] = g[7]&0x0f | 0x40
	g[8] = g[8]&0x3f | 0x80
	return g
}

// GUIDOf makes the one that belongs to some words, always the same: version 8 of RFC 9562, in the byte order of the
// disk.
func GUIDOf(words ...string) (g GUID) {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	copy(g[:], sum[:])
	g[7] = g[7]&0x0f | 0x80
	g[8] = g[8]&0x3f | 0x80
	return g
}
