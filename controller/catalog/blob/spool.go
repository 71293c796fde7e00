package blob

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// incoming is where files are until they are whole.
const incoming = "incoming"

// defaultReserve is kept free for whatever else lives on the file system.
const defaultReserve = 256 << 20

// Config has the place and the limits of the files.
type Config struct {
	Path string
	// Reserve is how many bytes of the file system stay free; 0 means 256 MiB.
	Reserve int64
}

// Spool is a directory with the files that come in: they are looked at and converted there, and go on from there. It is
// safe for concurrent use.
type Spool struct {
	path    string
	reserve int64
}

// OpenSpool makes the directory where it is missing and removes what a crash has left half written.
func OpenSpool(c Config) (*Spool, error) {
	s := &Spool{path: c.Path, reserve: c.Reserve}
	if s.reserve == 0 {
		s.reserve = defaultReserve
	}
	if err := os.MkdirAll(filepath.Join(s.path, incoming), 0o700); err != nil {
		return nil, fmt.Errorf("make blob directory: %w", err)
	}
	return s, s.Tidy()
}

// Tidy removes the incoming files whose writers are gone.
func (s *Spool) Tidy() error {
	names, err := os.ReadDir(filepath.Join(s.path, incoming))
	if err != nil {
		return fmt.Errorf("look for half-written blobs: %w", err)
	}
	for _, n := range names {
		if err := removeUnlocked(filepath.Join(s.path, incoming, n.Name())); err != nil {
			return fmt.Errorf("remove a half-written blob: %w", err)
		}
	}
	return nil
}

func removeUnlocked(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its writer was quicker
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // opened to be locked, nothing was written
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Create begins a file that goes to a destination.
func (s *Spool) Create(to Destination) (*Writer, error) {
	if err := s.Room(0); err != nil {
		return nil, err
	}
	for {
		f, err := os.CreateTemp(filepath.Join(s.path, incoming), "blob-*") // mode 0600
		if err != nil {
			return nil, nameFull(fmt.Errorf("begin blob: %w", err))
		}
		held, err := hold(f)
		if err != nil {
			return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
		if held {
			return &Writer{spool: s, to: to, f: f, sum: sha256.New()}, nil
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

// Space implements Store.
func (s *Spool) Space() (free, size int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.path, &st); err != nil {
		return 0, 0, fmt.Errorf("look for room: %w", err)
	}
	// Without root's own reserve, which is not for images.
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
}

// Room fails with IMAGE_STORE_FULL where so many bytes more would leave less free than the reserve.
func (s *Spool) Room(bytes int64) error {
	free, _, err := s.Space()
	if err != nil {
		return err
	}
	if free-s.reserve < bytes {
		return dirFull("%d bytes are wanted, %d are free, and %d stay free", bytes, free, s.reserve)
	}
	return nil
}

func dirFull(format string, args ...any) error {
	return Full("the controller's image directory is full: "+format, args...)
}

// nameFull names the error of a full disk.
func nameFull(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return Full("the controller's image directory is full: nothing more can be written").Wrap(err)
	}
	return err
}
