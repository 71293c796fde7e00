package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

var (
	// ErrNotFound is returned when the source has no such blob.
	ErrNotFound = errors.New("no such blob")
	// ErrCorrupt is returned when the source's bytes have another digest. An immediate retry is of no use.
	ErrCorrupt = errors.New("blob has another digest than its name")
	// ErrFull is returned when the blob doesn't fit beside those that are wanted.
	ErrFull = errors.New("blob cache has no room")
	// ErrClosed is returned when the cache is closed.
	ErrClosed = errors.New("blob cache is closed")
)

// Sink receives the bytes of a Source.
type Sink interface {
	// Begin is called once, before the first Write, with the size of the whole blob.
	Begin(size int64) error
	Write(p []byte) (int, error)
}

// Source writes the bytes of a blob from offset on. It returns nil when the blob has ended, and an error that wraps
// ErrNotFound when there is none. After any other error it may be called again.
type Source func(ctx context.Context, sha256 string, offset int64, to Sink) error

// DefaultMaxBytes is the size of a cache whose Config has none.
const DefaultMaxBytes = 32 << 30

// Config describes a Cache.
type Config struct {
	// Dir is made when it isn't there. Nothing else may be in it.
	Dir string
	// MaxBytes bounds what the directory holds.
	MaxBytes int64
	Source   Source
	Clock    clock.Clock
	Log      *slog.Logger
	// Retry is the first wait after the source was lost; it doubles up to 32 times that.
	Retry time.Duration
	// Distrust is how long a blob is refused after the source gave other bytes for it; 0 is half a minute.
	Distrust time.Duration
}

// Cache is safe for concurrent use.
type Cache struct {
	cfg    Config
	group  *task.Group
	ctx    context.Context //nolint:containedctx // the life of the fills, which no single caller owns
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	entries map[string]*entry
	// stored are the complete files, parts the incomplete ones, with their sizes.
	stored map[string]fileInfo
	parts  map[string]fileInfo
	// wanted are the blobs that are never evicted and are fetched ahead, in this order.
	wanted   []string
	isWanted map[string]bool
	prefetch chan struct{}
}

type fileInfo struct {
	size int64
	used time.Time
}

const partSuffix = ".part"

// New opens the directory. Close must be called.
func New(cfg Config) (*Cache, error) {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real()
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Retry == 0 {
		cfg.Retry = 250 * time.Millisecond
	}
	if cfg.Distrust == 0 {
		cfg.Distrust = 30 * time.Second
	}
	c := &Cache{
		cfg: cfg, entries: map[string]*entry{}, stored: map[string]fileInfo{}, parts: map[string]fileInfo{},
		isWanted: map[string]bool{}, prefetch: make(chan struct{}, 1),
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make blob cache: %w", err)
	}
	if err := c.list(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	c.group, c.ctx = task.New(ctx)
	c.cancel = cancel
	c.group.Go("prefetch", c.prefetchAll)
	return c, nil
}

// list reads what earlier processes have left.
func (c *Cache) list() error {
	names, err := os.ReadDir(c.cfg.Dir)
	if err != nil {
		return fmt.Errorf("list blob cache: %w", err)
	}
	for _, n := range names {
		info, err := n.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // gone by itself, or none of ours
		}
		f := fileInfo{size: info.Size(), used: info.ModTime()}
		sha, part := strings.CutSuffix(n.Name(), partSuffix)
		switch {
		case !ValidDigest(sha):
		case part:
			c.parts[sha] = f
		default:
			c.stored[sha] = f
		}
	}
	return nil
}

// Close ends the fills and waits for them. What they have fetched stays.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel(ErrClosed)
	return c.group.Wait()
}

// ValidDigest reports whether text is a SHA-256 in lower-case hex.
func ValidDigest(text string) bool {
	if len(text) != 64 {
		return false
	}
	for _, r := range []byte(text) {
		if !('0' <= r && r <= '9' || 'a' <= r && r <= 'f') {
			return false
		}
	}
	return true
}

// Open returns a blob, which is fetched when it isn't here. It returns when the size is known; ctx bounds that and
// every later wait of the Blob.
func (c *Cache) Open(ctx context.Context, sha256 string) (*Blob, error) {
	if !ValidDigest(sha256) {
		return nil, fmt.Errorf("open blob: %w", ErrNotFound)
	}
	e, err := c.entry(sha256)
	if err != nil {
		return nil, err
	}
	b, err := e.open(ctx)
	if err != nil {
		c.release(e)
		return nil, fmt.Errorf("open blob %s: %w", sha256, err)
	}
	b.cache = c
	c.touch(sha256)
	return b, nil
}

// entry returns the blob's entry with one more user, and starts the fill when it is new.
func (c *Cache) entry(sha256 string) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	e, ok := c.entries[sha256]
	if !ok || e.over(c.cfg.Clock.Now()) {
		e = newEntry(sha256, c.path(sha256))
		c.entries[sha256] = e
		c.group.Go("fill", func(ctx context.Context) error {
			c.fill(ctx, e)
			return nil // it failed for its readers, not for the cache
		})
	}
	e.addUser(1)
	return e, nil
}

func (c *Cache) release(e *entry) { e.addUser(-1) }

func (c *Cache) path(sha256 string) string { return filepath.Join(c.cfg.Dir, sha256) }

// touch remembers when the blob was used. That it can't be written costs an eviction in the wrong order.
func (c *Cache) touch(sha256 string) {
	now := c.cfg.Clock.Now()
	c.mu.Lock()
	f, ok := c.stored[sha256]
	if ok {
		f.used = now
		c.stored[sha256] = f
	}
	c.mu.Unlock()
	if !ok {
		return
	}
	if err := os.Chtimes(c.path(sha256), now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.cfg.Log.Warn("use of a blob not remembered", "sha256", sha256, "error", err)
	}
}

// Usage is how many bytes the directory holds.
func (c *Cache) Usage() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usage()
}

func (c *Cache) usage() int64 {
	var n int64
	for _, f := range c.stored {
		n += f.size
	}
	for _, f := range c.parts {
		n += f.size
	}
	return n
}
