package imagebuild

import (
	"fmt"
	"io"
)

// File types as they stand in the mode field (inode(7)).
const (
	modeFile = 0o100000
	modeDir  = 0o040000
	modeChar = 0o020000
)

// entry is one file of the archive. The name has no leading slash.
type entry struct {
	name         string
	mode         uint32
	major, minor uint32
	data         []byte
}

// writeArchive writes entries in the "newc" format that the kernel unpacks
// (Documentation/driver-api/early-userspace/buffer-format.rst). Everything belongs to root, has the time 0,
// and inodes are numbered in order, so the bytes depend on the entries alone.
func writeArchive(w io.Writer, entries []entry) error {
	for i, e := range entries {
		if err := writeEntry(w, uint32(i+1), e); err != nil {
			return fmt.Errorf("write %s: %w", e.name, err)
		}
	}
	return writeEntry(w, 0, entry{name: "TRAILER!!!"})
}

func writeEntry(w io.Writer, inode uint32, e entry) error {
	links := uint32(1)
	if e.mode&modeDir == modeDir {
		links = 2
	}
	fields := []any{
		inode, e.mode, 0, 0, links, 0, len(e.data), 0, 0, e.major, e.minor, len(e.name) + 1, 0,
	}
	header := "070701"
	for _, f := range fields {
		header += fmt.Sprintf("%08x", f)
	}
	header += e.name + "\x00"
	if err := writePadded(w, []byte(header)); err != nil {
		return err
	}
	return writePadded(w, e.data)
}

// writePadded fills up to a multiple of four bytes, which the format asks of header plus name and of the data.
func writePadded(w io.Writer, b []byte) error {
	if _, err := w.Write(b); err != nil {
		return err
	}
	_, err := w.Write(make([]byte, (4-len(b)%4)%4))
	return err
}
