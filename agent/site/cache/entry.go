package cache

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"
)

// hold is how many bytes at the end of a blob are held back until its digest is known to be right.
const hold = 64 << 10

// entry is a blob that was asked for in this process.
type entry struct {
	sha256 string
	path   string // of the complete file

	mu sync.Mutex
	// size is -1 until the source or the file has said it. have is how much of it may be read, but for hold.
	size, have int64
	ready      bool
	err        error
	// stands is until when err is the answer to later calls as well.
	stands  time.Time
	users   int
	changed chan struct{}
}

func newEntry(sha256, path string) *entry {
	return &entry{sha256: sha256, path: path, size: -1, changed: make(chan struct{})}
}

// update changes the entry and wakes everybody who waits for it.
func (e *entry) update(fn func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fn()
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *entry) fail(err error, stands time.Time) {
	e.update(func() { e.err, e.stands = err, stands })
}

func (e *entry) failed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err != nil
}

// over reports whether it has failed and the next call may fetch it again.
func (e *entry) over(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err != nil && !now.Before(e.stands)
}

func (e *entry) isReady() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ready
}

func (e *entry) addUser(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users += n
}

func (e *entry) inUse() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.users > 0
}

// readable is how many bytes from the start may be read now. The caller holds e.mu.
func (e *entry) readable() int64 {
	if e.ready {
		return e.size
	}
	return max(0, min(e.have, e.size-hold))
}

// wait returns nil as soon as ok returns true, which is called with e.mu held.
func (e *entry) wait(ctx context.Context, ok func() bool) error {
	for {
		e.mu.Lock()
		err, done, changed := e.err, ok(), e.changed
		e.mu.Unlock()
		switch {
		case err != nil:
			return err
		case done:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// open waits until the size is known.
func (e *entry) open(ctx context.Context) (*Blob, error) {
	if err := e.wait(ctx, func() bool { return e.size >= 0 }); err != nil {
		return nil, err
	}
	f, err := e.openFile()
	if errors.Is(err, fs.ErrNotExist) && !e.isReady() {
		// It turned out to be wrong and was removed; the reason is about to be said.
		return nil, e.wait(ctx, func() bool { return false })
	}
	if err != nil {
		return nil, err
	}
	return &Blob{ctx: ctx, entry: e, file: f, size: e.size}, nil
}

func (e *entry) openFile() (*os.File, error) {
	e.mu.Lock() // the file is renamed under the same lock
	defer e.mu.Unlock()
	if e.ready {
		return os.Open(e.path)
	}
	return os.Open(e.path + partSuffix)
}
