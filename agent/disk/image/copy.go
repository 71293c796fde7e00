package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/internal/gpt"
	"github.com/ingot-metal/ingot/internal/task"
)

// piece is a filled buffer on its way. Behind n it is zero up to the next alignment.
type piece struct {
	buf []byte
	off int64
	n   int
}

// pipe runs fill and drain beside each other over a few buffers. fill returns the number of bytes that it has put into
// the buffer; 0 is the end.
func pipe(
	ctx context.Context, from int64, fill func(buf []byte, off int64) (int, error), drain func(piece) error,
) error {
	free, full := make(chan []byte, chunks), make(chan piece, chunks)
	for range chunks {
		free <- block.Buffer(chunk)
	}
	g, _ := task.New(ctx)
	g.Go("fill", func(ctx context.Context) error {
		defer close(full)
		for off := from; ; off += chunk {
			var buf []byte
			select {
			case buf = <-free:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			n, err := fill(buf, off)
			if err != nil || n == 0 {
				return err
			}
			full <- piece{buf: buf, off: off, n: n} // there is room for every buffer
		}
	})
	g.Go("drain", func(ctx context.Context) error {
		for p := range full {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := drain(p); err != nil {
				return err
			}
			free <- p.buf
		}
		return nil
	})
	return g.Wait()
}

// copy writes the image but for its first MiB. The checksums are no security: they distinguish a disk that returns
// other data than was written from a wrong image. XXH64 costs next to nothing beside the SHA-256 of the reading back,
// also on processors without instructions for checksums.
func (w *writer) copy(ctx context.Context) error {
	w.track.begin(StageWrite, w.RawSize)
	begun := w.Clock.Now()
	err := pipe(ctx, gpt.HeadSize, w.receive, func(p piece) error {
		w.sums = append(w.sums, xxhash.Sum64(p.buf[:p.n]))
		if err := w.putPiece(p); err != nil {
			return err
		}
		w.track.step(p.off + int64(p.n))
		return nil
	})
	if err != nil {
		return err
	}
	err = w.flush()
	w.out.Write = w.Clock.Now().Sub(begun)
	return err
}

// receive fills a buffer from the stream, and looks behind the end of the image.
func (w *writer) receive(buf []byte, off int64) (int, error) {
	want := int(min(int64(len(buf)), max(w.RawSize-off, 0)))
	n, err := io.ReadFull(w.raw, buf[:want])
	if err != nil {
		return 0, w.ended(off+int64(n), err)
	}
	if off+int64(n) >= w.RawSize && n > 0 {
		return n, w.expectEnd()
	}
	return n, nil
}

func (w *writer) expectEnd() error {
	one := make([]byte, 1)
	n, err := io.ReadFull(w.raw, one)
	switch {
	case n > 0:
		return mismatch("the image is longer than its %d bytes", w.RawSize)
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// putPiece writes a piece, without its zeros where the disk is known to have zeros there.
func (w *writer) putPiece(p piece) error {
	padded := (p.n + block.Alignment - 1) / block.Alignment * block.Alignment
	clear(p.buf[p.n:padded])
	if !w.out.Zeroed {
		w.out.Written += int64(padded)
		return w.put(p.buf[:padded], p.off)
	}
	for from, to := range runs(p.buf[:padded]) {
		w.out.Written += int64(to - from)
		if err := w.put(p.buf[from:to], p.off+int64(from)); err != nil {
			return err
		}
	}
	return nil
}

var zeroGrain [grain]byte

// runs returns the stretches of b that are not zero, in whole grains.
func runs(b []byte) func(yield func(from, to int) bool) {
	return func(yield func(from, to int) bool) {
		from := -1
		for at := 0; at < len(b); at += grain {
			end := min(at+grain, len(b))
			zero := bytes.Equal(b[at:end], zeroGrain[:end-at])
			if !zero && from < 0 {
				from = at
			}
			if zero && from >= 0 {
				if !yield(from, at) {
					return
				}
				from = -1
			}
		}
		if from >= 0 {
			yield(from, len(b))
		}
	}
}

// verify reads the image back from the device.
func (w *writer) verify(ctx context.Context) error {
	w.track.begin(StageVerify, w.RawSize)
	begun := w.Clock.Now()
	sum := sha256.New()
	sum.Write(w.head)
	i := 0
	err := pipe(ctx, gpt.HeadSize, w.readBack, func(p piece) error {
		if xxhash.Sum64(p.buf[:p.n]) != w.sums[i] {
			return diskError("the disk gives back something else than was written, within %d bytes at %d", p.n, p.off)
		}
		i++
		sum.Write(p.buf[:p.n])
		w.track.step(p.off + int64(p.n))
		return nil
	})
	if err != nil {
		return err
	}
	w.out.Verify = w.Clock.Now().Sub(begun)
	return w.digestMatches(sum.Sum(nil))
}

func (w *writer) readBack(buf []byte, off int64) (int, error) {
	return readImage(w.Disk, w.RawSize, buf, off)
}

// readImage reads what of the image lies at off.
func readImage(d Disk, size int64, buf []byte, off int64) (int, error) {
	n := int(min(int64(len(buf)), max(size-off, 0)))
	padded := (n + block.Alignment - 1) / block.Alignment * block.Alignment
	if n == 0 {
		return 0, nil
	}
	return n, get(d, buf[:padded], off)
}

// ErrAnother is returned when a disk does not hold the image that was committed to it.
var ErrAnother = errors.New("the disk holds something else")

// Check reads a disk and returns nil when it is complete and bootable, as the Write with commit c left it. It writes
// nothing but makes durable what was written before. Of an image that was changed it reads the first MiB, which was
// written last: the rest had been flushed and read back by then. ErrAnother is a no; other errors leave it open.
func Check(ctx context.Context, d Disk, size int64, digest [sha256.Size]byte, c Commit) error {
	// An interrupted Write may not have reached its last flush: the data that is read could be in the disk's cache only.
	if err := d.Flush(); err != nil {
		return diskError("flush: %w", err)
	}
	head := block.Buffer(gpt.HeadSize)
	if err := get(d, head, 0); err != nil {
		return err
	}
	if hexSum(head) != c.Head {
		return fmt.Errorf("%w in its first MiB", ErrAnother)
	}
	if c.System != "" {
		// The image was read back whole, and the changes after it, before the first MiB was begun.
		return nil
	}
	if err := c.Undo.Apply(head); err != nil {
		return err
	}
	sum := sha256.New()
	sum.Write(head)
	err := pipe(ctx, gpt.HeadSize, func(buf []byte, off int64) (int, error) { return readImage(d, size, buf, off) },
		func(p piece) error {
			sum.Write(p.buf[:p.n])
			return nil
		})
	if err == nil && !bytes.Equal(sum.Sum(nil), digest[:]) {
		err = ErrAnother
	}
	return err
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
