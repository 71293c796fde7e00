package disktest

import "maps"

const pageSize = 64 << 10

// pages is the content of a disk without its zeros. Pages are never changed, only replaced, so that copies share them.
type pages map[int64]*[pageSize]byte

func (p pages) clone() pages { return maps.Clone(p) }

func (p pages) read(b []byte, off int64) {
	for len(b) > 0 {
		at, in := off/pageSize, off%pageSize
		n := min(int64(len(b)), pageSize-in)
		if page := p[at]; page != nil {
			copy(b[:n], page[in:])
		} else {
			clear(b[:n])
		}
		b, off = b[n:], off+n
	}
}

func (p pages) write(b []byte, off int64) {
	for len(b) > 0 {
		at, in := off/pageSize, off%pageSize
		fresh := new([pageSize]byte)
		if page := p[at]; page != nil {
			*fresh = *page
		}
		n := copy(fresh[in:], b)
		p[at] = fresh
		b, off = b[n:], off+int64(n)
	}
}

// each calls fn with every page from off on for n bytes that is not zeros.
func (p pages) each(off, n int64, fn func(b []byte, off int64)) {
	for at := off / pageSize; at*pageSize < off+n; at++ {
		if page := p[at]; page != nil {
			from, to := max(off, at*pageSize), min(off+n, (at+1)*pageSize)
			fn(page[from-at*pageSize:to-at*pageSize], from)
		}
	}
}

// same reports whether both hold the same bytes, and the first page that differs.
func (p pages) same(o pages) (at int64, same bool) {
	at = -1
	compare := func(a, b pages) {
		for n, page := range a {
			other := b[n]
			if page != other && (other == nil && *page != [pageSize]byte{} || other != nil && *page != *other) &&
				(at < 0 || n*pageSize < at) {
				at = n * pageSize
			}
		}
	}
	compare(p, o)
	compare(o, p)
	return at, at < 0
}
