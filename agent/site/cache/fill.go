package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/pki"
)

var (
	afterPart   = failpoint.Register("site.blob-after-part")
	afterRename = failpoint.Register("site.blob-after-rename")
)

// errShort is returned when the source ended before the blob did.
var errShort = errors.New("blob ended before its size")

// fill makes an entry ready or failed.
func (c *Cache) fill(ctx context.Context, e *entry) {
	err := c.fromDisk(e)
	if err != nil {
		err = c.fromSource(ctx, e)
	}
	if err != nil {
		c.cfg.Log.Warn("blob not fetched", "sha256", e.sha256, "error", err)
		e.fail(err, c.stands(err))
	}
}

// errResumed is returned when the wrong bytes may be those of an earlier process.
var errResumed = errors.New("its beginning was here before")

// stands is until when a failure is returned to further readers too. Bytes that are damaged where they are kept come
// back damaged, and a machine that waits for them had better be told.
func (c *Cache) stands(err error) time.Time {
	if errors.Is(err, ErrCorrupt) && !errors.Is(err, errResumed) {
		return c.cfg.Clock.Now().Add(c.cfg.Distrust)
	}
	return time.Time{}
}

// fromDisk takes a file that an earlier process has completed, if it is still what it was.
func (c *Cache) fromDisk(e *entry) error {
	f, err := os.Open(e.path)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != e.sha256 {
		c.cfg.Log.Error("stored blob is damaged; fetching it again", "sha256", e.sha256)
		c.forget(e.sha256)
		return errors.Join(ErrCorrupt, os.Remove(e.path))
	}
	e.update(func() { e.size, e.have, e.ready = n, n, true })
	return nil
}

func (c *Cache) forget(sha256 string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.stored, sha256)
	delete(c.parts, sha256)
}

// fromSource fetches the rest of the blob behind the bytes in the file, and asks again until it is complete.
func (c *Cache) fromSource(ctx context.Context, e *entry) (err error) {
	p, err := c.openPart(e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.file.Close()) }()
	for retry := c.cfg.Retry; ; retry = min(2*retry, 32*c.cfg.Retry) {
		before := p.have
		err := c.cfg.Source(ctx, e.sha256, p.have, p)
		if err == nil && p.size >= 0 && p.have == p.size {
			return p.finish(ctx)
		}
		if err == nil {
			err = errShort
		}
		if c.hopeless(ctx, e, err) {
			return errors.Join(err, p.drop(err))
		}
		if p.have > before {
			retry = c.cfg.Retry
		}
		c.cfg.Log.Warn("blob interrupted; going on", "sha256", e.sha256, "at", p.have, "retry_in", retry.String(), "error",
			err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.cfg.Clock.After(retry):
		}
	}
}

// hopeless reports whether asking again is of no use, or the blob is no longer wanted.
func (c *Cache) hopeless(ctx context.Context, e *entry, err error) bool {
	if ctx.Err() != nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFull) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.isWanted[e.sha256] && !e.inUse()
}

// part is a blob on its way in. It is the Sink of the source.
type part struct {
	c    *Cache
	e    *entry
	file *os.File
	hash hash.Hash
	// resumed is set when the file was not empty.
	resumed bool
	// size is -1 until the source has announced it; have is the number of bytes in the file and in the hash.
	size, have int64
}

// openPart hashes what an earlier attempt has left.
func (c *Cache) openPart(e *entry) (*part, error) {
	f, err := os.OpenFile(e.path+partSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open part of blob: %w", err)
	}
	p := &part{c: c, e: e, file: f, hash: sha256.New(), size: -1}
	if p.have, err = io.Copy(p.hash, f); err != nil {
		return nil, errors.Join(fmt.Errorf("read part of blob: %w", err), f.Close())
	}
	p.resumed = p.have > 0
	return p, nil
}

// Begin is of Sink.
func (p *part) Begin(size int64) error {
	if size < p.have || p.size >= 0 && size != p.size {
		return fmt.Errorf("%w: it has %d bytes, and %d of them are here", ErrCorrupt, size, p.have)
	}
	if err := p.c.reserve(p.e.sha256, size); err != nil {
		return err
	}
	p.size = size
	p.e.update(func() { p.e.size, p.e.have = size, p.have })
	return nil
}

// Write is of Sink.
func (p *part) Write(b []byte) (int, error) {
	if p.size < 0 || p.have+int64(len(b)) > p.size {
		return 0, fmt.Errorf("%w: more bytes than its size", ErrCorrupt)
	}
	n, err := p.file.Write(b)
	p.hash.Write(b[:n])
	p.have += int64(n)
	p.e.update(func() { p.e.have = p.have })
	if err != nil {
		return n, fmt.Errorf("store blob: %w", err)
	}
	return n, nil
}

// finish renames the file durably, once it has the digest of its name.
func (p *part) finish(ctx context.Context) error {
	if hex.EncodeToString(p.hash.Sum(nil)) != p.e.sha256 {
		err := ErrCorrupt
		if p.resumed {
			err = errors.Join(ErrCorrupt, errResumed)
		}
		return errors.Join(err, p.drop(err))
	}
	if err := p.file.Sync(); err != nil {
		return fmt.Errorf("store blob: %w", err)
	}
	if err := afterPart.HitCtx(ctx); err != nil {
		return err
	}
	if err := p.rename(); err != nil {
		return err
	}
	if err := afterRename.HitCtx(ctx); err != nil {
		return err
	}
	return pki.SyncDir(p.c.cfg.Dir)
}

func (p *part) rename() error {
	p.c.mu.Lock()
	delete(p.c.parts, p.e.sha256)
	p.c.stored[p.e.sha256] = fileInfo{size: p.size, used: p.c.cfg.Clock.Now()}
	p.c.mu.Unlock()
	var err error
	p.e.update(func() {
		if err = os.Rename(p.e.path+partSuffix, p.e.path); err == nil {
			p.e.ready = true
		}
	})
	if err != nil {
		return fmt.Errorf("store blob: %w", err)
	}
	return nil
}

// drop removes a part that can't be continued, and keeps any other.
func (p *part) drop(why error) error {
	if !errors.Is(why, ErrCorrupt) && !errors.Is(why, ErrNotFound) && !errors.Is(why, ErrFull) {
		return nil
	}
	p.c.forget(p.e.sha256)
	return os.Remove(p.e.path + partSuffix)
}
