package cdimage

import (
	"fmt"
	"io"
	"sort"
)

// Part is a piece of an image: Data, or Size bytes of From at Offset, or zeros where there is neither.
type Part struct {
	Data         []byte
	From         io.ReaderAt
	Offset, Size int64
}

func (p Part) size() int64 {
	if p.Data != nil {
		return int64(len(p.Data))
	}
	return p.Size
}

// Image is a file of parts. It implements io.ReaderAt, and may be read from several goroutines where its parts may.
type Image struct {
	parts []Part
	// starts are where the parts begin.
	starts []int64
	size   int64
}

func join(parts ...Part) *Image {
	i := &Image{}
	i.add(parts...)
	return i
}

func (i *Image) add(parts ...Part) {
	for _, p := range parts {
		if p.size() == 0 {
			continue
		}
		i.parts, i.starts = append(i.parts, p), append(i.starts, i.size)
		i.size += p.size()
	}
}

// pad fills up to a multiple of a unit.
func (i *Image) pad(unit int64) { i.add(Part{Size: -i.size & (unit - 1)}) }

// Size is in bytes.
func (i *Image) Size() int64 { return i.size }

// ReadAt implements io.ReaderAt.
func (i *Image) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("read an image at %d: before its start", off)
	}
	at := sort.Search(len(i.starts), func(k int) bool { return i.starts[k] > off }) - 1
	for ; n < len(p) && off < i.size; at++ {
		part, from := i.parts[at], off-i.starts[at]
		want := min(int64(len(p)-n), part.size()-from)
		if err := part.read(p[n:n+int(want)], from); err != nil {
			return n, err
		}
		n += int(want)
		off += want
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// read fills p.
func (p Part) read(into []byte, from int64) error {
	switch {
	case p.Data != nil:
		copy(into, p.Data[from:])
	case p.From != nil:
		if n, err := p.From.ReadAt(into, p.Offset+from); n < len(into) {
			if err == nil || err == io.EOF { //nolint:errorlint // io.ReaderAt gives exactly this
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read a part of an image: %w", err)
		}
	default:
		clear(into)
	}
	return nil
}
