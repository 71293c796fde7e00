package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// reserve makes room for a blob of that size and counts it as here.
func (c *Cache) reserve(sha256 string, size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.parts, sha256) // counted with its whole size from now on
	for c.usage()+size > c.cfg.MaxBytes {
		victim, part, ok := c.oldest(sha256)
		if !ok {
			return fmt.Errorf("%w: %d bytes beside %d of at most %d", ErrFull, size, c.usage(), c.cfg.MaxBytes)
		}
		if err := c.evict(victim, part); err != nil {
			return err
		}
	}
	c.parts[sha256] = fileInfo{size: size, used: c.cfg.Clock.Now()}
	return nil
}

// oldest is the blob that was used longest ago, of those that are neither used nor wanted.
func (c *Cache) oldest(but string) (sha256 string, part, ok bool) {
	var found fileInfo
	look := func(files map[string]fileInfo, isPart bool) {
		for name, f := range files {
			if name == but || c.isWanted[name] || c.busy(name) || ok && !f.used.Before(found.used) {
				continue
			}
			sha256, part, found, ok = name, isPart, f, true
		}
	}
	look(c.stored, false)
	look(c.parts, true)
	return sha256, part, ok
}

// busy reports whether the blob is being read or filled.
func (c *Cache) busy(sha256 string) bool {
	e := c.entries[sha256]
	return e != nil && !e.failed() && (e.inUse() || !e.isReady())
}

func (c *Cache) evict(sha256 string, part bool) error {
	path := c.path(sha256)
	if part {
		path += partSuffix
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("evict blob: %w", err)
	}
	c.cfg.Log.Info("blob evicted", "sha256", sha256)
	delete(c.entries, sha256)
	if part {
		delete(c.parts, sha256)
	} else {
		delete(c.stored, sha256)
	}
	return nil
}
