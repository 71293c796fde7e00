package httpboot

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/ingot-metal/ingot/agent/site/cache"
	"github.com/ingot-metal/ingot/internal/uki"
)

// rooms remembers where the command line stands in each unified kernel image.
type rooms struct {
	mu    sync.Mutex
	known map[string]room
}

type room struct {
	span uki.Span
	// own is the image's own command line.
	own string
}

// overlay returns the image with the parameters behind its own.
func (u *rooms) overlay(ctx context.Context, digest string, b *cache.Blob, params string) (io.ReadSeeker, error) {
	u.mu.Lock()
	at, ok := u.known[digest]
	u.mu.Unlock()
	if !ok {
		var err error
		if at, err = findRoom(ctx, b); err != nil {
			return nil, err
		}
		u.remember(digest, at)
	}
	fill, err := uki.Fill(joinParams(at.own, params), at.span.Size)
	if err != nil {
		return nil, err
	}
	return newOverlay(b, b.Size(), at.span.Offset, fill), nil
}

func (u *rooms) remember(digest string, at room) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.known == nil {
		u.known = map[string]room{}
	}
	u.known[digest] = at
}

// findRoom reads an image. Its section table stands at its start, but is worth nothing before its digest is right.
func findRoom(ctx context.Context, b *cache.Blob) (room, error) {
	if err := b.Wait(ctx); err != nil {
		return room{}, err
	}
	at := readerAt{b}
	span, err := uki.Cmdline(at)
	if err != nil {
		return room{}, err
	}
	own := make([]byte, span.Size)
	if _, err := at.ReadAt(own, span.Offset); err != nil {
		return room{}, fmt.Errorf("read command line of image: %w", err)
	}
	return room{span: span, own: string(own)}, nil
}

// joinParams puts ours behind those of the image: of two values the kernel takes the last.
func joinParams(own, ours string) string {
	return strings.Join(append(strings.Fields(strings.Trim(own, "\x00")), ours), " ")
}

// readerAt reads a blob for one user at a time.
type readerAt struct{ b *cache.Blob }

// ReadAt implements io.ReaderAt.
func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	if _, err := r.b.Seek(off, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := io.ReadFull(r.b, p)
	if err == io.ErrUnexpectedEOF { //nolint:errorlint // io.ReadFull gives exactly this
		err = io.EOF
	}
	return n, err
}
