package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Blob is an open blob. It is for one reader; Close must be called.
type Blob struct {
	ctx   context.Context //nolint:containedctx // io.Reader has no place for it
	cache *Cache
	entry *entry
	file  *os.File
	size  int64
	at    int64
	once  sync.Once
}

var _ io.ReadSeekCloser = (*Blob)(nil)

// Size is that of the whole blob.
func (b *Blob) Size() int64 { return b.size }

// File is the open file when the blob is complete, and nil otherwise. The kernel can send it by itself.
func (b *Blob) File() *os.File {
	if b.entry.isReady() {
		return b.file
	}
	return nil
}

// Wait returns nil when the blob is complete and its digest is right.
func (b *Blob) Wait(ctx context.Context) error {
	return b.entry.wait(ctx, func() bool { return b.entry.ready })
}

// Read waits for bytes that are not here yet.
func (b *Blob) Read(p []byte) (int, error) {
	if b.at >= b.size {
		return 0, io.EOF
	}
	var limit int64
	err := b.entry.wait(b.ctx, func() bool {
		limit = b.entry.readable()
		return b.at < limit
	})
	if err != nil {
		return 0, fmt.Errorf("read blob %s: %w", b.entry.sha256, err)
	}
	n, err := b.file.ReadAt(p[:min(int64(len(p)), limit-b.at)], b.at)
	b.at += int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // the file is shorter than it was
		if n > 0 {
			err = nil
		}
	}
	return n, err
}

// Seek does not wait.
func (b *Blob) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size
	}
	if offset < 0 {
		return 0, errors.New("seek in blob: before its start")
	}
	b.at = offset
	return offset, nil
}

// Close lets go of the blob.
func (b *Blob) Close() error {
	var err error
	b.once.Do(func() {
		b.cache.release(b.entry)
		err = b.file.Close()
	})
	return err
}
