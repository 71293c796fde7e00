package erase

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ingot-metal/ingot/agent/disk/block"
)

const (
	// sampleSize and sampleCount: each end of the disk, and as many places between them at even distances.
	sampleSize  = 64 << 10
	sampleCount = 256
	writeSize   = 4 << 20
	discardSize = 1 << 30
)

// samples are blocks of a disk as they were.
type samples struct {
	at   []int64
	were []uint64 // a checksum of each; 0 is all zeros
}

// places spreads the samples over a disk of the size, aligned, first and last block included.
func places(size int64) []int64 {
	last := (size - sampleSize) / block.Alignment * block.Alignment
	if last <= 0 {
		return []int64{0}
	}
	var out []int64
	for i := range int64(sampleCount) {
		at := last / (sampleCount - 1) * i / block.Alignment * block.Alignment
		if i == sampleCount-1 {
			at = last
		}
		if len(out) == 0 || at > out[len(out)-1] {
			out = append(out, at)
		}
	}
	return out
}

func takeSamples(ctx context.Context, d Disk) (samples, error) {
	s := samples{at: places(d.Size())}
	buf := block.Buffer(sampleSize)
	for _, at := range s.at {
		sum, err := sampleAt(ctx, d, buf, at)
		if err != nil {
			return s, err
		}
		s.were = append(s.were, sum)
	}
	return s, nil
}

func sampleAt(ctx context.Context, d Disk, buf []byte, at int64) (uint64, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	buf = buf[:min(int64(len(buf)), d.Size()-at)]
	if n, err := d.ReadAt(buf, at); n != len(buf) {
		return 0, fmt.Errorf("read %d bytes at %d: %w", len(buf), at, err)
	}
	return checksum(buf), nil
}

// checksum is FNV-1a over words, and 0 for zeros alone.
func checksum(b []byte) uint64 {
	if bytes.Equal(b, make([]byte, len(b))) {
		return 0
	}
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return max(h, 1)
}

// verify reads the same places again. With zeros each must be zeros; without, each that was not must have changed.
func (s samples) verify(ctx context.Context, d Disk, zeros bool) (string, error) {
	buf := block.Buffer(sampleSize)
	held := 0
	for i, at := range s.at {
		now, err := sampleAt(ctx, d, buf, at)
		if err != nil {
			return "", err
		}
		if s.were[i] != 0 {
			held++
		}
		if zeros && now != 0 || !zeros && s.were[i] != 0 && now == s.were[i] {
			return "", fmt.Errorf("%w: there is data at byte %d", ErrNotErased, at)
		}
	}
	if zeros {
		return fmt.Sprintf("%d blocks of %d KiB all over the disk read as zeros; %d held data before", len(s.at), sampleSize>>10, held), nil
	}
	return fmt.Sprintf("the device reports success; of %d blocks of %d KiB all over the disk %d held data before and none holds it now",
		len(s.at), sampleSize>>10, held), nil
}

func (c Config) discard(ctx context.Context) error {
	size := c.Disk.Size()
	for off := int64(0); off < size; off += discardSize {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := c.Disk.Discard(off, min(discardSize, size-off))
		if errors.Is(err, block.ErrUnsupported) {
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		if err != nil {
			return fmt.Errorf("discard at %d: %w", off, err)
		}
		c.Progress(int(off*100/size), string(Discard))
	}
	return c.Disk.Flush()
}

func (c Config) overwrite(ctx context.Context) error {
	size, zeros := c.Disk.Size(), block.Buffer(writeSize)
	for off := int64(0); off < size; off += writeSize {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b := zeros[:min(writeSize, size-off)]
		if n, err := c.Disk.WriteAt(b, off); n != len(b) || err != nil {
			return fmt.Errorf("write %d bytes at %d: wrote %d: %w", len(b), off, n, err)
		}
		c.Progress(int(off*100/size), fmt.Sprintf("%s %d/%d MiB", Overwrite, off>>20, size>>20))
	}
	return c.Disk.Flush()
}
