package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ingot-metal/ingot/internal/pki"
)

// Dir is an open directory of blobs.
type Dir struct{ *Spool }

// Open makes the directory where it is missing and removes what a crash has left half written.
func Open(c Config) (*Dir, error) {
	s, err := OpenSpool(c)
	return &Dir{s}, err
}

// Look returns a directory to read from. It makes nothing and removes nothing; one that is missing is empty.
func Look(path string) *Dir { return &Dir{&Spool{path: path}} }

// Create implements Store.
func (d *Dir) Create() (*Writer, error) { return d.Spool.Create(renamed{d}) }

// Tidy implements Store.
func (d *Dir) Tidy(context.Context) error { return d.Spool.Tidy() }

// Open implements Store. The file stays readable after Remove.
func (d *Dir) Open(_ context.Context, sha256 string, offset int64) (io.ReadCloser, int64, error) {
	if !IsDigest(sha256) {
		return nil, 0, NotFound(sha256)
	}
	f, err := os.Open(d.name(sha256))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, NotFound(sha256)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open blob: %w", err)
	}
	size, err := seek(f, offset)
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

func seek(f *os.File, offset int64) (size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("look at blob: %w", err)
	}
	if err := Outside(offset, info.Size()); err != nil {
		return 0, err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return 0, fmt.Errorf("look at blob: %w", err)
	}
	return info.Size(), nil
}

// Has implements Store.
func (d *Dir) Has(_ context.Context, sha256 string) (bool, error) {
	if !IsDigest(sha256) {
		return false, nil
	}
	_, err := os.Stat(d.name(sha256))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for blob: %w", err)
	}
	return true, nil
}

// Remove implements Store.
func (d *Dir) Remove(_ context.Context, sha256 string) error {
	if !IsDigest(sha256) {
		return nil
	}
	if err := os.Remove(d.name(sha256)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove blob: %w", err)
	}
	return pki.SyncDir(d.path)
}

// List implements Store.
func (d *Dir) List(context.Context) ([]Info, error) {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list blobs: %w", err)
	}
	var out []Info
	for _, e := range entries {
		if !IsDigest(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list blobs: %w", err)
		}
		out = append(out, Info{e.Name(), info.Size()})
	}
	return out, nil
}

func (d *Dir) name(sha256 string) string { return filepath.Join(d.path, sha256) }

// renamed is the destination of a file that stays on its file system.
type renamed struct{ dir *Dir }

func (r renamed) Send(_ context.Context, w *Writer) error {
	if err := w.f.Sync(); err != nil {
		return nameFull(fmt.Errorf("sync blob: %w", err))
	}
	return nil
}

func (r renamed) Place(_ context.Context, w *Writer) error {
	if err := os.Rename(w.f.Name(), r.dir.name(w.SHA256())); err != nil {
		return fmt.Errorf("place blob: %w", err)
	}
	w.moved = true
	return nil
}

func (r renamed) Settle() error { return pki.SyncDir(r.dir.path) }

func (r renamed) Abandon() error { return nil }
