package erase

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"

	"github.com/ingot-metal/ingot/agent/disk/block"
)

const (
	sampleSize  = 64 << 10
	sampleCount = 256
)

// samples are blocks of a disk as they were: both ends, and random places between them.
type samples struct {
	at      []int64
	were    []uint64 // checksums
	planted int      // how many were written for this
}

// places draws the samples for a disk of the size. They are aligned, sorted, and differ.
func places(size int64) []int64 {
	blocks := size / sampleSize
	if blocks <= sampleCount {
		var all []int64
		for at := int64(0); at < size; at += sampleSize {
			all = append(all, at)
		}
		return all
	}
	out := []int64{0, (blocks - 1) * sampleSize}
	for range sampleCount - len(out) {
		out = append(out, mathrand.Int64N(blocks)*sampleSize)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func sampleAt(d Disk, buf []byte, at int64) (uint64, error) {
	buf = buf[:min(int64(len(buf)), d.Size()-at)]
	if n, err := d.ReadAt(buf, at); n != len(buf) {
		return 0, fmt.Errorf("read %d bytes at %d: %w", len(buf), at, err)
	}
	return checksum(buf), nil
}

// checksum is FNV-1a, and 0 for zeros alone.
func checksum(b []byte) uint64 {
	if bytes.Equal(b, zeroBytes[:len(b)]) {
		return 0
	}
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return max(h, 1)
}

// takeSamples reads the samples right before a device erases itself. It writes random bytes over samples that are zeros
// or unreadable, so that a device that does nothing is noticed on an empty disk too. A place that does not give them
// back is no sample.
func takeSamples(d Disk) samples {
	var s samples
	buf := block.Buffer(sampleSize)
	for _, at := range places(d.Size()) {
		sum, err := sampleAt(d, buf, at)
		if err != nil || sum == 0 {
			if sum = plant(d, buf, at); sum == 0 {
				continue
			}
			s.planted++
		}
		s.at, s.were = append(s.at, at), append(s.were, sum)
	}
	return s
}

// plant writes random bytes and returns their checksum; 0 when they don't read back.
func plant(d Disk, buf []byte, at int64) uint64 {
	b := buf[:min(sampleSize, d.Size()-at)]
	rand.Read(b)
	want := checksum(b)
	if n, err := d.WriteAt(b, at); n != len(b) || err != nil {
		return 0
	}
	if got, err := sampleAt(d, buf, at); err != nil || got != want {
		return 0
	}
	return want
}

// verifyChanged reads the same places again: each that held data must hold something else. It returns what was seen.
func (s samples) verifyChanged(ctx context.Context, d Disk) (string, error) {
	buf := block.Buffer(sampleSize)
	if len(s.at) == 0 {
		return "", fmt.Errorf("%w: no sample held data that could be compared", ErrNotErased)
	}
	for i, at := range s.at {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		now, err := sampleAt(d, buf, at)
		if err != nil {
			return "", fmt.Errorf("%w: it cannot be read back: %w", ErrNotErased, err)
		}
		if now == s.were[i] {
			return "", fmt.Errorf("%w: there is data at byte %d", ErrNotErased, at)
		}
	}
	return fmt.Sprintf(
		"the device reports success; %d blocks of %d KiB at random places (%d written for this) hold their data no "+
			"more; the other bytes of %d were not read", len(s.at), sampleSize>>10, s.planted, d.Size()), nil
}

var zeroBytes = make([]byte, writeSize)

// verifyZeros reads the whole disk.
func (c Config) verifyZeros(ctx context.Context) (string, error) {
	size, buf := c.Disk.Size(), block.Buffer(writeSize)
	rate := c.newRate("gave")
	for off := int64(0); off < size; off += writeSize {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		b := buf[:min(writeSize, size-off)]
		if n, err := c.Disk.ReadAt(b, off); n != len(b) {
			return "", fmt.Errorf("%w: %d bytes at %d cannot be read back: %w", ErrNotErased, len(b), off, err)
		}
		if !bytes.Equal(b, zeroBytes[:len(b)]) {
			i := slices.IndexFunc(b, func(c byte) bool { return c != 0 })
			return "", fmt.Errorf("%w: there is data at byte %d", ErrNotErased, off+int64(i))
		}
		if err := rate.at(off); err != nil {
			return "", fmt.Errorf("%w: it was not read back in full: %w", ErrNotErased, err)
		}
		c.Progress(50+int(off*50/size), fmt.Sprintf("read back %d/%d MiB", off>>20, size>>20))
	}
	return fmt.Sprintf("all %d bytes of the disk were read back as zeros", size), nil
}
