package erase

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	writeSize   = 4 << 20
	discardSize = 1 << 30
	// maxFaults is how many blocks of sampleSize an overwrite may fail to write before the disk counts as dead.
	maxFaults = 64
	// A disk that moves less than stallBytes in stallTime counts as dead.
	stallTime  = 15 * time.Minute
	stallBytes = 64 << 20
)

// errNoGuarantee is why a discard that reads as zeros now is no erasure.
var errNoGuarantee = errors.New("the device guarantees no zeros, and may show the old data again after a loss of power")

// discard discards all blocks, and has the device make them zeros by a command that guarantees them.
func (c Config) discard(ctx context.Context, out *Evidence) error {
	if err := c.everywhere(ctx, 0, c.Disk.Discard); err != nil {
		return fmt.Errorf("discard: %w", err)
	}
	if err := c.everywhere(ctx, 25, c.Disk.Zero); ctx.Err() != nil {
		return err
	} else if err != nil && c.Method == Auto {
		return fmt.Errorf("%w (%w)", errNoGuarantee, err)
	} else if err != nil {
		out.Notes = append(out.Notes, fmt.Sprintf("%v (%v)", errNoGuarantee, err))
	}
	return c.Disk.Flush()
}

// everywhere calls order for the whole disk, in pieces.
func (c Config) everywhere(ctx context.Context, percent int, order func(off, n int64) error) error {
	size := c.Disk.Size()
	for off := int64(0); off < size; off += discardSize {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := order(off, min(discardSize, size-off))
		if errors.Is(err, block.ErrUnsupported) {
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		if err != nil {
			return fmt.Errorf("at %d: %w", off, err)
		}
		c.Progress(percent+int(off*25/size), string(Discard))
	}
	return nil
}

// faults are the places that could not be written.
type faults struct {
	count int
	last  error
	at    []string
}

func (f *faults) add(off int64, err error) {
	f.count++
	f.last = err
	if len(f.at) < 8 {
		f.at = append(f.at, fmt.Sprint(off))
	}
}

// overwrite writes zeros everywhere. A block that cannot be written does not keep the others from being written.
func (c Config) overwrite(ctx context.Context) error {
	size, zeros := c.Disk.Size(), block.Buffer(writeSize)
	var bad faults
	rate := c.newRate("took")
	for off := int64(0); off < size; off += writeSize {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b := zeros[:min(writeSize, size-off)]
		if n, err := c.Disk.WriteAt(b, off); n != len(b) || err != nil {
			c.overwriteFinely(b, off, &bad)
		}
		if bad.count > maxFaults {
			return fmt.Errorf("overwrite: gave up at byte %d after %d blocks failed: %w", off, bad.count, bad.last)
		}
		if err := rate.at(off); err != nil {
			return fmt.Errorf("overwrite: %w", err)
		}
		c.Progress(int(off*50/size), fmt.Sprintf("%s %d/%d MiB", Overwrite, off>>20, size>>20))
	}
	if err := c.Disk.Flush(); err != nil {
		return fmt.Errorf("overwrite: flush: %w", err)
	}
	if bad.count > 0 {
		return fmt.Errorf("overwrite: %d blocks of %d KiB could not be written, at %s; the others were: %w", bad.count,
			sampleSize>>10,
			strings.Join(bad.at, ", "), bad.last)
	}
	return nil
}

// rate measures how fast a disk is, and returns an error for one that has stalled.
type rate struct {
	clock clock.Clock
	what  string
	since time.Time
	off   int64
}

func (c Config) newRate(what string) *rate {
	return &rate{clock: c.Clock, what: what, since: c.Clock.Now()}
}

// at is called where the work has got to.
func (r *rate) at(off int64) error {
	now := r.clock.Now()
	if now.Sub(r.since) <= stallTime {
		return nil
	}
	if off-r.off < stallBytes {
		return fmt.Errorf("the disk %s %d bytes at %d in %s", r.what, off-r.off, r.off, now.Sub(r.since))
	}
	r.since, r.off = now, off
	return nil
}

// overwriteFinely writes what it can of a range that failed as a whole.
func (c Config) overwriteFinely(zeros []byte, off int64, bad *faults) {
	for at := 0; at < len(zeros) && bad.count <= maxFaults; at += sampleSize {
		b := zeros[at:min(at+sampleSize, len(zeros))]
		if n, err := c.Disk.WriteAt(b, off+int64(at)); n != len(b) || err != nil {
			bad.add(off+int64(at), fmt.Errorf("wrote %d bytes of %d: %w", n, len(b), err))
		}
	}
}
