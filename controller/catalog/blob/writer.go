package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/pki"
)

var (
	atWrite = failpoint.Register("blob.at-write")
	atPlace = failpoint.Register("blob.before-place")
	placed  = failpoint.Register("blob.after-place")
)

// lookEvery is how much is written between two looks at the room that is left.
const lookEvery = 64 << 20

// Writer is a file on its way into the directory. Close it in any case; what was not placed is gone then.
type Writer struct {
	dir    *Dir
	f      *os.File
	sum    hash.Hash
	size   int64
	looked int64
	placed bool
}

// Create begins a file.
func (d *Dir) Create() (*Writer, error) {
	if err := d.Room(0); err != nil {
		return nil, err
	}
	for {
		f, err := os.CreateTemp(filepath.Join(d.path, incoming), "blob-*") // mode 0600
		if err != nil {
			return nil, nameFull(fmt.Errorf("begin blob: %w", err))
		}
		held, err := hold(f)
		if err != nil {
			return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
		if held {
			return &Writer{dir: d, f: f, sum: sha256.New()}, nil
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("begin blob: %w", err)
		}
	}
}

// hold locks the file. It is false where a sweep of another process came in between and has removed it.
func hold(f *os.File) (bool, error) {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return false, fmt.Errorf("lock blob: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, fmt.Errorf("look at blob: %w", err)
	}
	return st.Nlink > 0, nil
}

// Write appends.
func (w *Writer) Write(p []byte) (int, error) {
	if w.size-w.looked >= lookEvery {
		if err := w.dir.Room(int64(len(p))); err != nil {
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

// nameFull names the error of a full disk.
func nameFull(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return full("nothing more can be written").Wrap(err)
	}
	return err
}

// ReadAt reads back what was written.
func (w *Writer) ReadAt(p []byte, off int64) (int, error) { return w.f.ReadAt(p, off) }

// Size is how much was written, in bytes.
func (w *Writer) Size() int64 { return w.size }

// SHA256 is the digest of what was written, lower hex.
func (w *Writer) SHA256() string { return hex.EncodeToString(w.sum.Sum(nil)) }

// Sync brings the bytes to the disk, so that Place is quick.
func (w *Writer) Sync() error {
	if err := w.f.Sync(); err != nil {
		return nameFull(fmt.Errorf("sync blob: %w", err))
	}
	return nil
}

// Place gives the file its name. Call Sync first. A blob of the same digest is replaced; a second call does nothing.
func (w *Writer) Place() error {
	if w.placed {
		return nil
	}
	if err := atPlace.Hit(); err != nil {
		return err
	}
	if err := os.Rename(w.f.Name(), w.dir.name(w.SHA256())); err != nil {
		return fmt.Errorf("place blob: %w", err)
	}
	w.placed = true
	if err := placed.Hit(); err != nil {
		return err
	}
	return pki.SyncDir(w.dir.path)
}

// Close lets go of the file, and removes it if it was not placed.
func (w *Writer) Close() error {
	var err error
	if !w.placed {
		if err = os.Remove(w.f.Name()); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err = errors.Join(err, w.f.Close()); err != nil {
		return fmt.Errorf("let go of blob: %w", err)
	}
	return nil
}

// Release is Close of a file whose fate is decided: that it could not be removed concerns nobody but the next start.
func (w *Writer) Release(log *slog.Logger) {
	if err := w.Close(); err != nil {
		log.Warn("incoming file not removed; the next start will", "error", err.Error())
	}
}
