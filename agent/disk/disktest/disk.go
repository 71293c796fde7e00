// Package disktest has a disk in memory for tests, which can fail, lie and lose power at any byte.
package disktest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/ingot-metal/ingot/agent/disk/block"
)

// Errors of a Disk.
var (
	ErrPower = errors.New("the power is off")
	ErrIO    = errors.New("input/output error")
)

// Kept is the part of the unflushed writes that a disk keeps when its power is cut.
type Kept int

// The parts that a disk can keep.
const (
	KeepNone Kept = iota
	KeepAll
	KeepSome // of each sector it is drawn
)

// Lie is what a disk does with a discard that it reports as done.
type Lie int

// Lies of disks. Linux trusts only the drives on a list to read as zeros after a discard (drivers/ata/libata-core.c,
// ATA_HORKAGE_ZERO_AFTER_TRIM).
const (
	// Honest: see Disk.Trims.
	Honest Lie = iota
	// DoesNothing: the old data stays.
	DoesNothing
	// DoesParts: some blocks stay.
	DoesParts
	// ShowsZeros: reads give zeros until the power is lost, and the old data afterwards (ACS-4, 7.5: a trimmed sector may
	// be indeterminate until it is written).
	ShowsZeros
)

// Disk is a disk with a volatile cache. The zero values of its switches make an honest one. They must not be changed
// while it is used.
type Disk struct {
	SectorSize int
	// NoDiscard makes it refuse to discard and to zero.
	NoDiscard bool
	// NoZero makes it refuse to zero; discarded blocks then read as Junk.
	NoZero bool
	// Trims makes discarded blocks zeros, as many disks do and none promises.
	Trims bool
	// DiscardLie is how a discard is not what it seems.
	DiscardLie Lie
	// ZeroLie makes it report that it has made zeros, and leave what there was.
	ZeroLie bool
	// Blocked fails reads and writes as long as it returns an error, as a locked drive does.
	Blocked func() error
	// CutAt turns the power off when so many bytes have been written; 0: never. Kept determines which writes survive.
	CutAt int64
	Kept  Kept
	Rand  *rand.Rand
	// OnWrite, OnRead and OnFlush may fail an operation, and OnWrite may shorten it or change b, of which it gets a copy.
	OnWrite func(b []byte, off int64) (n int, err error)
	OnRead  func(b []byte, off int64) error
	OnFlush func() error
	// OnDiscard may fail a discard, which then does nothing.
	OnDiscard func(off, n int64) error

	mu      sync.Mutex
	size    int64
	durable pages
	cache   pages
	// veil is the old data behind zeros that are only shown, by sector.
	veil    map[int64]*[sector]byte
	key     byte // of the last erasure by the drive itself
	off     bool
	written int64
	log     []Span
	fresh   int // writes at the end of log that were not flushed
}

// Span is a write.
type Span struct{ Off, Len int64 }

const sector = 512

// junkSize is how much of each end of a new disk is not zeros.
const junkSize = 4 << 20

// junk is shared by all disks, since pages are never changed.
var junk = func() *[pageSize]byte {
	var page [pageSize]byte
	for i := range page {
		page[i] = byte(i*7+i>>9) | 1
	}
	return &page
}()

// New makes a disk of size bytes with junk at both ends, as used disks have.
func New(size int64) *Disk {
	d := &Disk{SectorSize: sector, size: size, durable: pages{}}
	for at := int64(0); at < size; at += pageSize {
		if at < junkSize || at >= size-junkSize {
			d.durable[at/pageSize] = junk
			if size-at < pageSize {
				d.durable[at/pageSize] = new([pageSize]byte)
				copy(d.durable[at/pageSize][:size-at], junk[:])
			}
		}
	}
	d.cache = d.durable.clone()
	return d
}

// Size implements image.Disk, as the following do.
func (d *Disk) Size() int64 { return d.size }

// Sector is the size of a block.
func (d *Disk) Sector() int { return d.SectorSize }

// Close leaves it as it is.
func (d *Disk) Close() error { return nil }

// RereadTable does nothing.
func (d *Disk) RereadTable() error { return nil }

// Durable reads the durable content.
func (d *Disk) Durable(b []byte, off int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.durable.read(b, off)
}

// Cached reads the content that the disk returns while it has power, without its faults.
func (d *Disk) Cached(b []byte, off int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cache.read(b, off)
}

// Fill writes to the disk behind its back, durably.
func (d *Disk) Fill(b []byte, off int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cache.write(b, off)
	d.durable.write(b, off)
}

// Load makes the disk hold what r has, durably.
func (d *Disk) Load(r io.ReaderAt) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cache = pages{}
	buf := make([]byte, pageSize)
	for at := int64(0); at < d.size; at += pageSize {
		b := buf[:min(pageSize, d.size-at)]
		if _, err := r.ReadAt(b, at); err != nil {
			return err
		}
		if !bytes.Equal(b, zeroPage[:len(b)]) {
			d.cache.write(b, at)
		}
	}
	d.durable = d.cache.clone()
	return nil
}

var zeroPage [pageSize]byte

// Save writes what the disk holds to a file, without its zeros.
func (d *Disk) Save(w io.WriterAt) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, page := range d.durable {
		if _, err := w.WriteAt(page[:min(pageSize, d.size-n*pageSize)], n*pageSize); err != nil {
			return err
		}
	}
	return nil
}

// SameAs reports whether two disks hold the same bytes, durable and cached, and the first place where they do not.
func (d *Disk) SameAs(o *Disk) (at int64, same bool) {
	if at, same = d.durable.same(o.durable); !same {
		return at, false
	}
	return d.cache.same(o.cache)
}

// Copy makes a disk that holds what this one does.
func (d *Disk) Copy() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Disk{SectorSize: d.SectorSize, size: d.size, durable: d.durable.clone(), cache: d.cache.clone()}
}

// LosePower cuts the disk's power and restores it: of the unflushed writes those of Kept survive.
func (d *Disk) LosePower() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut()
	d.unveil()
	d.cache, d.off, d.CutAt, d.fresh = d.durable.clone(), false, 0, 0
}

// Writes are all writes so far.
func (d *Disk) Writes() []Span {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.log)
}

// Written counts the bytes that were written or lost.
func (d *Disk) Written() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.written
}

// PowerOn returns a disk without faults that has the surviving content.
func (d *Disk) PowerOn() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	on := &Disk{SectorSize: d.SectorSize, NoDiscard: d.NoDiscard, NoZero: d.NoZero, size: d.size,
		durable: d.durable.clone(), veil: d.veil}
	on.unveil()
	on.cache = on.durable.clone()
	return on
}

// WriteAt writes into the cache.
func (d *Disk) WriteAt(b []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(b, off); err != nil {
		return 0, err
	}
	n, err := len(b), error(nil)
	if d.OnWrite != nil {
		b = slices.Clone(b)
		n, err = d.OnWrite(b, off)
	}
	if d.CutAt > 0 && d.written+int64(n) >= d.CutAt {
		n = int(d.CutAt - d.written)
		d.put(b[:n], off)
		d.cut()
		return n, ErrPower
	}
	d.put(b[:n], off)
	return n, err
}

func (d *Disk) put(b []byte, off int64) {
	d.cache.write(b, off)
	for at := off; len(d.veil) > 0 && at < off+int64(len(b)); at += sector {
		delete(d.veil, at)
	}
	d.written += int64(len(b))
	d.log = append(d.log, Span{off, int64(len(b))})
	d.fresh++
}

// unveil brings back what a discard had only hidden.
func (d *Disk) unveil() {
	for at, old := range d.veil {
		d.durable.write(old[:], at)
	}
	d.veil = nil
}

// check holds callers to what O_DIRECT asks for: whole sectors.
func (d *Disk) check(b []byte, off int64) error {
	switch {
	case d.off:
		return ErrPower
	case off < 0 || off+int64(len(b)) > d.size:
		return errors.New("beyond the end of the disk")
	case off%int64(d.SectorSize) != 0 || len(b)%d.SectorSize != 0:
		return errors.New("not aligned")
	case d.Blocked != nil:
		return d.Blocked()
	}
	return nil
}

func (d *Disk) cut() {
	d.off = true
	switch d.Kept {
	case KeepAll:
		d.durable = d.cache
	case KeepSome:
		buf := make([]byte, sector)
		for _, w := range d.log[len(d.log)-d.fresh:] {
			for at := w.Off / sector * sector; at < w.Off+w.Len; at += sector {
				if d.Rand.IntN(2) == 0 {
					d.cache.read(buf, at)
					d.durable.write(buf, at)
				}
			}
		}
	}
}

// ReadAt reads what the cache holds.
func (d *Disk) ReadAt(b []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(b, off); err != nil {
		return 0, err
	}
	d.cache.read(b, off)
	if d.OnRead != nil {
		if err := d.OnRead(b, off); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// Flush makes the cache durable.
func (d *Disk) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return ErrPower
	}
	if d.OnFlush != nil {
		if err := d.OnFlush(); err != nil {
			return err
		}
	}
	d.durable = d.cache.clone()
	d.fresh = 0
	return nil
}

// Discard leaves other junk than before.
func (d *Disk) Discard(off, n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return ErrPower
	}
	if d.NoDiscard {
		return block.ErrUnsupported
	}
	if d.OnDiscard != nil {
		if err := d.OnDiscard(off, n); err != nil {
			return err
		}
	}
	if d.DiscardLie == ShowsZeros {
		d.hide(off, n)
	}
	d.cache.each(off, n, func(b []byte, at int64) {
		if d.DiscardLie == DoesNothing || d.DiscardLie == DoesParts && at/pageSize%7 == 3 {
			return
		}
		other := slices.Clone(b)
		for i := range other {
			other[i] ^= 0x5a
		}
		if d.Trims || d.DiscardLie != Honest {
			clear(other)
		}
		d.cache.write(other, at)
	})
	return nil
}

// hide keeps what a range holds for the next loss of power.
func (d *Disk) hide(off, n int64) {
	if d.veil == nil {
		d.veil = map[int64]*[sector]byte{}
	}
	d.cache.each(off, n, func(b []byte, at int64) {
		for i := 0; i+sector <= len(b); i += sector {
			if old := [sector]byte(b[i:]); old != ([sector]byte{}) {
				d.veil[at+int64(i)] = &old
			}
		}
	})
}

// Zero makes a range zeros.
func (d *Disk) Zero(off, n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return ErrPower
	}
	if d.NoDiscard || d.NoZero {
		return block.ErrUnsupported
	}
	if d.ZeroLie {
		return nil
	}
	for at := range d.veil {
		if off <= at && at < off+n {
			delete(d.veil, at) // WRITE ZEROES guarantees zeros (NVM Command Set Specification 1.0, 3.2.8)
		}
	}
	d.cache.each(off, n, func(b []byte, at int64) { d.cache.write(make([]byte, len(b)), at) })
	return nil
}
