package bucket

import (
	"context"
	"errors"
	"io"
	"time"
)

var errStalled = errors.New("the service has sent nothing for too long")

// body is the rest of an object on its way. It ends well only when all of it has come.
type body struct {
	rc     io.ReadCloser
	left   int64
	ctx    context.Context //nolint:containedctx // that of the request whose answer this is
	cancel context.CancelCauseFunc
	stall  time.Duration
	sha256 string
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), b.left)]
	stalled := time.AfterFunc(b.stall, func() { b.cancel(errStalled) })
	n, err := b.rc.Read(p)
	stalled.Stop()
	b.left -= int64(n)
	switch {
	case err == nil, errors.Is(err, io.EOF) && b.left == 0:
		return n, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		// Without the cause: a reader must not take it for the end of the blob.
		return n, unavailable("the service has ended its answer %d bytes early", b.left)
	}
	return n, failed(b.ctx, "read", b.sha256, err)
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.cancel(nil)
	return b.rc.Close()
}
