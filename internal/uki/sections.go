package uki

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Offsets in a PE file (https://learn.microsoft.com/windows/win32/debug/pe-format). Those of the optional header are
// the same in PE32+ for every architecture.
const (
	newHeaderAt     = 0x3c // of the DOS header: where "PE\0\0" stands
	coffSections    = 2    // of the COFF header: number of sections
	coffOptional    = 16   // size of the optional header
	coffLen         = 20
	optInitialized  = 8
	optSectionAlign = 32
	optFileAlign    = 36
	optImageSize    = 56
	optHeaderSize   = 60
	optChecksum     = 64
	optLen          = 112 // of what comes before the data directories
	magicPE32Plus   = 0x20b
	sectionLen      = 40
	// pageLen is what firmware allocates by; a stub may be linked closer.
	pageLen = 4096

	// readOnlyData is IMAGE_SCN_CNT_INITIALIZED_DATA | IMAGE_SCN_MEM_READ.
	readOnlyData = 0x00000040 | 0x40000000
)

var errNoProgram = errors.New("not an EFI program")

type section struct {
	name string
	data []byte
}

// headers are offsets in a file.
type headers struct {
	coff, opt, table int
	count            int
}

func findHeaders(program []byte) (headers, error) {
	le := binary.LittleEndian
	if len(program) < newHeaderAt+4 || program[0] != 'M' || program[1] != 'Z' {
		return headers{}, errNoProgram
	}
	at := int64(le.Uint32(program[newHeaderAt:]))
	if at+4+coffLen+optLen > int64(len(program)) || !bytes.Equal(program[at:at+4], []byte("PE\x00\x00")) {
		return headers{}, errNoProgram
	}
	h := headers{coff: int(at) + 4}
	h.opt = h.coff + coffLen
	h.count = int(le.Uint16(program[h.coff+coffSections:]))
	h.table = h.opt + int(le.Uint16(program[h.coff+coffOptional:]))
	if le.Uint16(program[h.opt:]) != magicPE32Plus || h.table+h.count*sectionLen > len(program) {
		return headers{}, errNoProgram
	}
	return h, nil
}

// appendSections copies the program and adds to it. The entries of the new sections need room between the last
// entry and the first section's data, which linkers leave.
func appendSections(program []byte, add []section) ([]byte, error) {
	h, err := findHeaders(program)
	if err != nil {
		return nil, fmt.Errorf("read stub: %w", err)
	}
	le := binary.LittleEndian
	out := bytes.Clone(program)
	align, fileAlign := le.Uint32(out[h.opt+optSectionAlign:]), le.Uint32(out[h.opt+optFileAlign:])
	if align == 0 || fileAlign == 0 {
		return nil, fmt.Errorf("read stub: %w: it has no alignment", errNoProgram)
	}
	entry := h.table + h.count*sectionLen
	if room := int(le.Uint32(out[h.opt+optHeaderSize:])); entry+len(add)*sectionLen > min(room, len(out)) {
		return nil, fmt.Errorf("stub has no room for %d more sections", len(add))
	}
	end := lastAddress(out, h)
	initialized := le.Uint32(out[h.opt+optInitialized:])
	for _, s := range add {
		address := roundUp(end, max(align, pageLen))
		out = append(out, make([]byte, roundUp(uint32(len(out)), fileAlign)-uint32(len(out)))...)
		putEntry(out[entry:], s, address, uint32(len(out)), fileAlign)
		out = append(out, s.data...)
		end, entry = address+uint32(len(s.data)), entry+sectionLen
		initialized += roundUp(uint32(len(s.data)), fileAlign)
	}
	out = append(out, make([]byte, roundUp(uint32(len(out)), fileAlign)-uint32(len(out)))...)
	le.PutUint16(out[h.coff+coffSections:], uint16(h.count+len(add)))
	le.PutUint32(out[h.opt+optInitialized:], initialized)
	le.PutUint32(out[h.opt+optImageSize:], roundUp(end, align))
	le.PutUint32(out[h.opt+optChecksum:], 0) // not checked in EFI programs
	return out, nil
}

// putEntry writes a section header.
func putEntry(at []byte, s section, address, offset, fileAlign uint32) {
	le := binary.LittleEndian
	clear(at[:sectionLen])
	copy(at[:8], s.name)
	le.PutUint32(at[8:], uint32(len(s.data)))
	le.PutUint32(at[12:], address)
	le.PutUint32(at[16:], roundUp(uint32(len(s.data)), fileAlign))
	le.PutUint32(at[20:], offset)
	le.PutUint32(at[36:], readOnlyData)
}

// lastAddress is the first free address behind the sections in memory.
func lastAddress(program []byte, h headers) uint32 {
	le := binary.LittleEndian
	var end uint32
	for i := range h.count {
		at := program[h.table+i*sectionLen:]
		end = max(end, le.Uint32(at[12:])+le.Uint32(at[8:]))
	}
	return end
}

func roundUp(n, to uint32) uint32 { return (n + to - 1) / to * to }
