package cache

import (
	"context"
	"errors"
	"slices"
	"time"
)

// prefetchRetry is the wait after a blob could not be fetched ahead.
const prefetchRetry = 15 * time.Second

// Want sets the wanted blobs: they are fetched ahead, one after the other in this order, and not evicted. It replaces
// the former list.
func (c *Cache) Want(list []string) {
	c.mu.Lock()
	c.wanted = slices.Clone(list)
	c.isWanted = make(map[string]bool, len(list))
	for _, sha256 := range list {
		c.isWanted[sha256] = true
	}
	c.mu.Unlock()
	select {
	case c.prefetch <- struct{}{}:
	default:
	}
}

// prefetchAll fetches the wanted blobs until ctx ends.
func (c *Cache) prefetchAll(ctx context.Context) error {
	for {
		var again <-chan time.Time
		if !c.prefetchOnce(ctx) {
			again = c.cfg.Clock.After(prefetchRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.prefetch:
		case <-again:
		}
	}
}

// prefetchOnce reports whether all that is wanted is here. It starts from the top when the list changes.
func (c *Cache) prefetchOnce(ctx context.Context) (all bool) {
	c.mu.Lock()
	list := c.wanted
	c.mu.Unlock()
	all = true
	for _, sha256 := range list {
		if ctx.Err() != nil {
			return true
		}
		if err := c.fetchAhead(ctx, sha256); err != nil {
			c.cfg.Log.Warn("blob not fetched ahead", "sha256", sha256, "error", err)
			all = false
		}
	}
	return all
}

func (c *Cache) fetchAhead(ctx context.Context, sha256 string) error {
	b, err := c.Open(ctx, sha256)
	if err != nil {
		return err
	}
	return errors.Join(b.Wait(ctx), b.Close())
}
