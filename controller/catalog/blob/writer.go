package blob

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"log/slog"
	"os"

	"github.com/ingot-metal/ingot/internal/failpoint"
)

var (
	atWrite = failpoint.Register("blob.at-write")
	atPlace = failpoint.Register("blob.before-place")
	placed  = failpoint.Register("blob.after-place")
)

// lookEvery is how much is written between two looks at the room that is left.
const lookEvery = 64 << 20

// Destination is where one file goes. Its methods are called in this order, Abandon instead of those that are left.
type Destination interface {
	// Send transfers the bytes durably, without making them visible.
	Send(ctx context.Context, w *Writer) error
	// Place shows them under their digest, all at once. It is quick.
	Place(ctx context.Context, w *Writer) error
	// Settle makes what Place did outlast a loss of power.
	Settle() error
	// Abandon takes back what was sent.
	Abandon() error
}

// Writer is a file on its way into a store. Close it in any case; what was not placed is gone then.
type Writer struct {
	spool  *Spool
	to     Destination
	f      *os.File
	sum    hash.Hash
	size   int64
	looked int64
	placed bool
	// moved is set when the file has left the spool.
	moved bool
}

// Write appends.
func (w *Writer) Write(p []byte) (int, error) {
	if w.size-w.looked >= lookEvery {
		if err := w.spool.Room(int64(len(p))); err != nil {
			return 0, err
		}
		w.looked = w.size
	}
	if err := atWrite.Hit(); err != nil {
		return 0, nameFull(err)
	}
	n, err := w.f.Write(p)
	w.sum.Write(p[:n]) // never fails
	w.size += int64(n)
	return n, nameFull(err)
}

// ReadAt reads back what was written.
func (w *Writer) ReadAt(p []byte, off int64) (int, error) { return w.f.ReadAt(p, off) }

// Size is how much was written, in bytes.
func (w *Writer) Size() int64 { return w.size }

// SHA256 is the digest of what was written, lower hex.
func (w *Writer) SHA256() string { return hex.EncodeToString(w.sum.Sum(nil)) }

// Send brings the bytes to where they are kept, so that Place is quick.
func (w *Writer) Send(ctx context.Context) error { return w.to.Send(ctx, w) }

// Place renames the file to its digest. Call Send first. A blob of the same digest is replaced; a second call does
// nothing.
func (w *Writer) Place(ctx context.Context) error {
	if w.placed {
		return nil
	}
	if err := atPlace.HitCtx(ctx); err != nil {
		return err
	}
	if err := w.to.Place(ctx, w); err != nil {
		return err
	}
	w.placed = true
	if err := placed.HitCtx(ctx); err != nil {
		return err
	}
	return w.to.Settle()
}

// Close lets go of the file, and of what was sent if it was not placed.
func (w *Writer) Close() error {
	var err error
	if !w.placed {
		err = w.to.Abandon()
	}
	if !w.moved {
		if e := os.Remove(w.f.Name()); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err = errors.Join(err, w.f.Close()); err != nil {
		return fmt.Errorf("let go of blob: %w", err)
	}
	return nil
}

// Release is Close of a file that is done: if it cannot be removed, the next start does it.
func (w *Writer) Release(log *slog.Logger) {
	if err := w.Close(); err != nil {
		log.Warn("incoming file not removed; the next start will", "error", err.Error())
	}
}
