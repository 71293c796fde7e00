package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/pki"
)

// incoming is where files are until they are whole.
const incoming = "incoming"

// defaultReserve is kept free for whatever else lives on the file system.
const defaultReserve = 256 << 20

// Config says where the files are.
type Config struct {
	Path string
	// Reserve is how many bytes of the file system stay free; 0 means 256 MiB.
	Reserve int64
}

// Dir is an open directory of blobs. It is safe for concurrent use.
type Dir struct {
	path    string
	reserve int64
}

// Open makes the directory where it is missing and removes what a crash has left half written.
func Open(c Config) (*Dir, error) {
	d := &Dir{path: c.Path, reserve: c.Reserve}
	if d.reserve == 0 {
		d.reserve = defaultReserve
	}
	if err := os.MkdirAll(filepath.Join(d.path, incoming), 0o700); err != nil {
		return nil, fmt.Errorf("make blob directory: %w", err)
	}
	return d, d.sweep()
}

// sweep removes the incoming files whose writers are gone.
func (d *Dir) sweep() error {
	names, err := os.ReadDir(filepath.Join(d.path, incoming))
	if err != nil {
		return fmt.Errorf("look for half-written blobs: %w", err)
	}
	for _, n := range names {
		if err := removeUnlocked(filepath.Join(d.path, incoming, n.Name())); err != nil {
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

var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Open opens a blob for reading and gives its size. The file stays readable after Remove.
func (d *Dir) Open(sha256 string) (*os.File, int64, error) {
	if !digest.MatchString(sha256) {
		return nil, 0, notFound(sha256)
	}
	f, err := os.Open(d.name(sha256))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, notFound(sha256)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open blob: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("look at blob: %w", err), f.Close())
	}
	return f, info.Size(), nil
}

func notFound(sha256 string) error {
	return failure.NotFound("BLOB_NOT_FOUND", "there is no blob %.64q", sha256).WithField("sha256", "unknown")
}

// Has says whether a blob is there.
func (d *Dir) Has(sha256 string) bool {
	if !digest.MatchString(sha256) {
		return false
	}
	_, err := os.Stat(d.name(sha256))
	return err == nil
}

// Store knows which blobs have entries; *store.Store is one.
type Store interface {
	// DropBlob calls drop unless an entry names the blob.
	DropBlob(ctx context.Context, sha256 string, drop func() error) error
}

// dropTime bounds the removal of a blob, which goes on when its caller has gone.
const dropTime = 30 * time.Second

// Drop removes a blob unless an entry names it. What cannot be removed now goes at the next start.
func (d *Dir) Drop(ctx context.Context, s Store, sha256 string, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	if err := s.DropBlob(ctx, sha256, func() error { return d.Remove(sha256) }); err != nil {
		log.Warn("unwanted blob not removed; the next start will", "sha256_file", sha256, "error", err.Error())
	}
}

// Remove removes a blob; one that is not there is none to remove.
func (d *Dir) Remove(sha256 string) error {
	if !digest.MatchString(sha256) {
		return nil
	}
	if err := os.Remove(d.name(sha256)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove blob: %w", err)
	}
	return pki.SyncDir(d.path)
}

// List gives the digests of all blobs.
func (d *Dir) List() ([]string, error) {
	names, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("list blobs: %w", err)
	}
	var out []string
	for _, n := range names {
		if digest.MatchString(n.Name()) {
			out = append(out, n.Name())
		}
	}
	return out, nil
}

// Space is what unprivileged processes may still take, and the size of the file system, in bytes.
func (d *Dir) Space() (free, size int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(d.path, &st); err != nil {
		return 0, 0, fmt.Errorf("look for room: %w", err)
	}
	// Without root's own reserve, which is not for images.
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
}

// Room fails with IMAGE_STORE_FULL where so many bytes more would leave less free than the reserve.
func (d *Dir) Room(bytes int64) error {
	free, _, err := d.Space()
	if err != nil {
		return err
	}
	if free-d.reserve < bytes {
		return full("%d bytes are wanted, %d are free, and %d stay free", bytes, free, d.reserve)
	}
	return nil
}

// full asks for a person: waiting alone frees nothing.
func full(format string, args ...any) *failure.Error {
	e := failure.Exhausted("IMAGE_STORE_FULL", "the controller's image directory is full: "+format, args...)
	e.Retryable = false
	return e
}

func (d *Dir) name(sha256 string) string { return filepath.Join(d.path, sha256) }
