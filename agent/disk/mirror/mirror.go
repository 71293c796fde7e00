// Package mirror makes one disk of two, so that a machine goes on when either fails: software RAID 1 of Linux, with its
// superblock at the disks' ends (metadata version 1.0). Each disk by itself looks as if it alone held the image, which
// is what firmware and boot loaders see.
//
// # State model
//
// Clear takes away what either disk was part of before; Label makes them a mirror. In between both are written alike by
// this package, and no kernel takes them for a mirror. The new system assembles it by its own mdadm.
//
// # Failure handling
//
// A write is done when both disks have it, and a read returns the data on which both agree: the first fault of either
// is the mirror's. A mirror that begins without one of its disks is not made here.
package mirror

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/task"
)

// endSize is how much of a disk's end is looked after, at least: the superblock, and what disks have at their ends.
const endSize = 1 << 20

// name of the mirror, as mdadm shows it.
const name = "ingot"

// Half is one of the two disks.
type Half interface {
	image.Disk
	io.Closer
}

// Disk is both as one.
type Disk struct {
	halves [2]Half
	size   int64
	set    [16]byte
}

// New makes a mirror of two open disks, and owns them. It changes neither. They must have sectors of one size.
func New(a, b Half) (*Disk, error) {
	if a.Sector() != b.Sector() {
		return nil, fmt.Errorf("the disks have sectors of %d and of %d bytes: %w", a.Sector(), b.Sector(),
			block.ErrUnsupported)
	}
	d := &Disk{halves: [2]Half{a, b}, size: disk.MirrorSize(a.Size(), b.Size())}
	d.set = uuid()
	return d, nil
}

// uuid is of version 4 (RFC 9562), in the order in which md prints it.
func uuid() (id [16]byte) {
	// crypto/rand.Read never fails; it ends the process when the kernel has no randomness.
	rand.Read(id[:])
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// UUID of the mirror, as mdadm prints it.
func (d *Disk) UUID() string {
	h := hex.EncodeToString(d.set[:])
	return h[:8] + ":" + h[8:16] + ":" + h[16:24] + ":" + h[24:]
}

// Size and Sector are bytes.
func (d *Disk) Size() int64 { return d.size }

// Sector is the size of a logical block of either disk, in bytes.
func (d *Disk) Sector() int { return d.halves[0].Sector() }

// Seq is unknown: a mirror is no medium.
func (d *Disk) Seq() uint64 { return 0 }

// both does something to each disk, at one time.
func (d *Disk) both(do func(i int, h Half) error) error {
	g, _ := task.New(context.Background())
	for i, h := range d.halves {
		g.Go("half of a mirror", func(context.Context) error {
			if err := do(i, h); err != nil {
				return fmt.Errorf("disk %d of the mirror: %w", i+1, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// ErrDiffer is returned when the disks of a mirror hold different data.
var ErrDiffer = errors.New("the disks of the mirror hold different data")

// ReadAt reads from both, and fails with ErrDiffer where they do not agree.
func (d *Disk) ReadAt(b []byte, off int64) (n int, err error) {
	other := block.Buffer(len(b))
	var got [2]int
	err = d.both(func(i int, h Half) (err error) {
		to := b
		if i == 1 {
			to = other
		}
		got[i], err = h.ReadAt(to, off)
		return err
	})
	n = min(got[0], got[1])
	if !bytes.Equal(b[:n], other[:n]) {
		return 0, fmt.Errorf("%w within %d bytes at %d", ErrDiffer, n, off)
	}
	return n, err
}

// WriteAt writes to both.
func (d *Disk) WriteAt(b []byte, off int64) (int, error) {
	if off+int64(len(b)) > d.size {
		return 0, fmt.Errorf("write %d bytes at %d: the mirror ends at %d", len(b), off, d.size)
	}
	var got [2]int
	err := d.both(func(i int, h Half) (err error) {
		got[i], err = h.WriteAt(b, off)
		return err
	})
	return min(got[0], got[1]), err
}

// Flush returns when all that was written is durable on both.
func (d *Disk) Flush() error { return d.both(func(_ int, h Half) error { return h.Flush() }) }

// Discard discards a range of both.
func (d *Disk) Discard(off, n int64) error {
	return d.both(func(_ int, h Half) error { return h.Discard(off, n) })
}

// Zero makes a range of both read as zeros; block.ErrUnsupported where one of them has no order for that.
func (d *Disk) Zero(off, n int64) error {
	return d.both(func(_ int, h Half) error { return h.Zero(off, n) })
}

// RereadTable lets the kernel look at the tables of both.
func (d *Disk) RereadTable() error {
	return d.both(func(_ int, h Half) error { return h.RereadTable() })
}

// Close closes both.
func (d *Disk) Close() error { return errors.Join(d.halves[0].Close(), d.halves[1].Close()) }

// Clear zeroes what lies behind the mirror on both disks, durably, and reads it back: an old superblock, or an old
// backup of a partition table.
func (d *Disk) Clear() error { return d.ends(func(int, Half) []byte { return nil }) }

// Label makes the disks a mirror: it writes their superblocks, durably, and reads them back.
func (d *Disk) Label(now time.Time) error {
	return d.ends(func(i int, h Half) []byte {
		return Superblock{
			Set: d.set, Disk: uuid(), Name: name, Number: i, Size: d.size, DiskSize: h.Size(), Made: now,
		}.Encode()
	})
}

// ends writes the last one to two MiB of each disk: zeros, and its superblock where there is one.
func (d *Disk) ends(superblock func(i int, h Half) []byte) error {
	return d.both(func(i int, h Half) error {
		from := max(d.size, (h.Size()-endSize)/endSize*endSize)
		want := block.Buffer(int(h.Size() - from))
		copy(want[superblockAt(h.Size())-from:], superblock(i, h))
		if _, err := h.WriteAt(want, from); err != nil {
			return fmt.Errorf("write %d bytes at %d: %w", len(want), from, err)
		}
		if err := h.Flush(); err != nil {
			return err
		}
		got := block.Buffer(len(want))
		if _, err := h.ReadAt(got, from); err != nil {
			return fmt.Errorf("read %d bytes at %d: %w", len(got), from, err)
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("the disk's end, from byte %d, %w", from, errReadsBack)
		}
		return nil
	})
}

var errReadsBack = errors.New("reads back differently than it was written")

// Check reports whether Label was the last to write the disks' ends: nil, ErrNoMirror, or what keeps them from being
// read.
func (d *Disk) Check() error {
	found := [2][]byte{block.Buffer(superblockSize), block.Buffer(superblockSize)}
	err := d.both(func(i int, h Half) error {
		_, err := h.ReadAt(found[i], superblockAt(h.Size()))
		return err
	})
	if err != nil {
		return err
	}
	if err := sameMirror(found[0], found[1], d.size); err != nil {
		return err
	}
	copy(d.set[:], found[0][0x10:0x20])
	return nil
}
