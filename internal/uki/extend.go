package uki

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Piece is a part of a file that is put together while it is read: Data, or where that is nil Size bytes of another
// file from Offset on.
type Piece struct {
	Data         []byte
	Offset, Size int64
}

// Extension is what one machine's copy of an image has beside the image.
type Extension struct {
	// Cmdline takes the place of the image's own.
	Cmdline string
	// Initrd is an uncompressed cpio archive that is unpacked over the image's initramfs.
	Initrd []byte
}

// headLen is as much of an image as its headers can take.
const headLen = 64 << 10

// initrdAlign is where the kernel looks for the next archive (buffer-format.rst).
const initrdAlign = 4

// Extend returns the pieces of the image with an extension, in their order. Sections behind the initramfs move up, in
// the file and in memory. It reads the image's headers alone.
func Extend(image io.ReaderAt, size int64, e Extension) ([]Piece, error) {
	head := make([]byte, min(headLen, size))
	if _, err := image.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read unified kernel image: %w", err)
	}
	h, err := findHeaders(head)
	if err != nil {
		return nil, fmt.Errorf("read unified kernel image: %w", err)
	}
	room, err := h.find(head, ".cmdline")
	if err != nil {
		return nil, err
	}
	initrd, err := h.find(head, ".initrd")
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	cmdline, err := Fill(e.Cmdline, int64(le.Uint32(head[room+entrySize:])))
	if err != nil {
		return nil, err
	}
	cmdlineAt := int64(le.Uint32(head[room+entryOffset:]))
	initrdEnd := int64(le.Uint32(head[initrd+entryOffset:])) + int64(le.Uint32(head[initrd+entrySize:]))
	if cmdlineAt+int64(len(cmdline)) > initrdEnd || cmdlineAt < int64(h.table+h.count*sectionLen) || initrdEnd > size {
		return nil, errors.New("unified kernel image: its sections are in another order than ours")
	}
	tail := append(make([]byte, -initrdEnd&(initrdAlign-1)), e.Initrd...)
	rest, grown, err := h.grow(head, initrd, tail)
	if err != nil {
		return nil, err
	}
	tail = append(tail, make([]byte, rest+grown-initrdEnd-int64(len(tail)))...)
	headEnd := int64(h.table + h.count*sectionLen)
	return []Piece{
		{Data: head[:headEnd]}, {Offset: headEnd, Size: cmdlineAt - headEnd}, {Data: cmdline},
		{Offset: cmdlineAt + int64(len(cmdline)), Size: initrdEnd - cmdlineAt - int64(len(cmdline))}, {Data: tail},
		{Offset: rest, Size: size - rest},
	}, nil
}

// Offsets in the entry of a section.
const (
	entrySize    = 8
	entryAddress = 12
	entryRawSize = 16
	entryOffset  = 20
)

// find returns the place of a section's entry.
func (h headers) find(head []byte, name string) (int, error) {
	for i := range h.count {
		at := h.table + i*sectionLen
		if string(head[at:at+len(name)]) == name && (len(name) == 8 || head[at+len(name)] == 0) {
			return at, nil
		}
	}
	return 0, fmt.Errorf("read unified kernel image: no section %s", name)
}

// grow changes the headers so that the section at entry is longer by the tail, and what stands behind it moves up. rest
// is where that begins in the file, and grown how far it moves.
func (h headers) grow(head []byte, entry int, tail []byte) (rest, grown int64, err error) {
	le := binary.LittleEndian
	align := max(le.Uint32(head[h.opt+optSectionAlign:]), pageLen)
	fileAlign := le.Uint32(head[h.opt+optFileAlign:])
	if fileAlign == 0 {
		return 0, 0, fmt.Errorf("read unified kernel image: %w: it has no alignment", errNoProgram)
	}
	offset, address := le.Uint32(head[entry+entryOffset:]), le.Uint32(head[entry+entryAddress:])
	rawEnd := offset + le.Uint32(head[entry+entryRawSize:])
	size := le.Uint32(head[entry+entrySize:]) + uint32(len(tail))
	inFile, inMemory := roundUp(uint32(len(tail)), fileAlign), roundUp(uint32(len(tail)), align)
	for i := range h.count {
		at := h.table + i*sectionLen
		if moved := le.Uint32(head[at+entryAddress:]); moved > address {
			le.PutUint32(head[at+entryAddress:], moved+inMemory)
		}
		if moved := le.Uint32(head[at+entryOffset:]); moved >= rawEnd {
			le.PutUint32(head[at+entryOffset:], moved+inFile)
		}
	}
	le.PutUint32(head[entry+entrySize:], size)
	le.PutUint32(head[entry+entryRawSize:], le.Uint32(head[entry+entryRawSize:])+inFile)
	le.PutUint32(head[h.opt+optInitialized:], le.Uint32(head[h.opt+optInitialized:])+inFile)
	le.PutUint32(head[h.opt+optImageSize:], le.Uint32(head[h.opt+optImageSize:])+inMemory)
	return int64(rawEnd), int64(inFile), nil
}
