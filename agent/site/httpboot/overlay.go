package httpboot

import (
	"fmt"
	"io"
)

// overlay is a file with some bytes in it replaced.
type overlay struct {
	src     io.ReadSeeker
	size    int64
	at      int64
	from    int64
	replace []byte
}

func newOverlay(src io.ReadSeeker, size, from int64, replace []byte) *overlay {
	return &overlay{src: src, size: size, from: from, replace: replace}
}

// Read implements io.Reader.
func (o *overlay) Read(p []byte) (int, error) {
	if o.at >= o.size {
		return 0, io.EOF
	}
	if _, err := o.src.Seek(o.at, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := o.src.Read(p)
	// The part of p that is covered: [from, from+len) as seen from o.at.
	first := max(0, o.from-o.at)
	last := min(int64(n), o.from+int64(len(o.replace))-o.at)
	if first < last {
		copy(p[first:last], o.replace[o.at+first-o.from:])
	}
	o.at += int64(n)
	return n, err
}

// Seek implements io.Seeker.
func (o *overlay) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += o.at
	case io.SeekEnd:
		offset += o.size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek to %d: before the start", offset)
	}
	o.at = offset
	return offset, nil
}
