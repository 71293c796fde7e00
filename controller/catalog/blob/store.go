package blob

import (
	"context"
	"io"
	"log/slog"
	"regexp"
	"time"

	"github.com/ingot-metal/ingot/internal/failure"
)

// Store keeps blobs under their digests: Dir in a directory, bucket.Bucket in one of S3. It is safe for concurrent use,
// also by several processes.
type Store interface {
	Reader
	// Create begins a file.
	Create() (*Writer, error)
	// Has says whether a blob is there.
	Has(ctx context.Context, sha256 string) (bool, error)
	// Remove removes a blob; one that is not there is none to remove.
	Remove(ctx context.Context, sha256 string) error
	// Tidy removes what writers have left that died.
	Tidy(ctx context.Context) error
	// Room fails with IMAGE_STORE_FULL where a file of so many bytes cannot come in.
	Room(bytes int64) error
	// Space is what the file system that files come in through has free for unprivileged processes, and its size.
	Space() (free, size int64, err error)
}

// Reader is a Store that is only read.
type Reader interface {
	// Open opens a blob for reading from an offset on, and gives the size of the whole. What is read ends with io.EOF at
	// the blob's end only. ctx bounds the reading too.
	Open(ctx context.Context, sha256 string, offset int64) (io.ReadCloser, int64, error)
	// List gives all blobs.
	List(ctx context.Context) ([]Info, error)
}

// Info is what a list says of a blob.
type Info struct {
	SHA256 string
	Size   int64
}

// Entries knows which blobs have entries; the store of the catalogue is one.
type Entries interface {
	// DropBlob calls drop unless an entry names the blob.
	DropBlob(ctx context.Context, sha256 string, drop func() error) error
}

// dropTime bounds the removal of a blob, which goes on when its caller has gone.
const dropTime = 30 * time.Second

// Drop removes a blob unless an entry names it. What cannot be removed now goes at the next start.
func Drop(ctx context.Context, s Store, e Entries, sha256 string, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	if err := e.DropBlob(ctx, sha256, func() error { return s.Remove(ctx, sha256) }); err != nil {
		log.Warn("unwanted blob not removed; the next start will", "sha256_file", sha256, "error", err.Error())
	}
}

var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// IsDigest reports whether a name is a SHA-256 in lower hex, as every blob's is.
func IsDigest(name string) bool { return digest.MatchString(name) }

// NotFound is the error for a blob that is not there.
func NotFound(sha256 string) *failure.Error {
	return failure.NotFound("BLOB_NOT_FOUND", "there is no blob %.64q", sha256).WithField("sha256", "unknown")
}

// Outside refuses to open a blob of this size at an offset; nil where it may.
func Outside(offset, size int64) error {
	if offset < 0 || offset > size {
		return failure.Invalid("INVALID_FIELD", "offset is not from 0 to %d", size).WithField("offset", "outside the blob")
	}
	return nil
}

// Full is the error for a store without room. It asks for a person: waiting alone frees nothing.
func Full(format string, args ...any) *failure.Error {
	e := failure.Exhausted("IMAGE_STORE_FULL", format, args...)
	e.Retryable = false
	return e
}
