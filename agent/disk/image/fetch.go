package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

// Source is the location of an image's file.
type Source struct {
	URL string
	// Size of the file in bytes; 0 is unknown.
	Size int64
	// Client makes the requests; see NewClient.
	Client *http.Client
	Clock  clock.Clock
	Log    *slog.Logger
	// Patience is how long the source may bring nothing before it is given up; 0 means DefaultPatience.
	Patience time.Duration
}

// DefaultPatience is enough for a boot server to be restarted, even on other hardware.
const DefaultPatience = 2 * time.Minute

// stall is how long an open connection may bring nothing.
const stall = 20 * time.Second

// NewClient returns a client for Source: no proxy, no redirects to elsewhere, and no connection that hangs for ever.
func NewClient() *http.Client {
	d := net.Dialer{Timeout: 10 * time.Second}
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return stallGuard{c}, nil
		},
		DisableCompression: true, MaxIdleConns: 2, ResponseHeaderTimeout: stall, ReadBufferSize: 256 << 10,
		TLSHandshakeTimeout: stall,
	}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// stallGuard ends reads that bring nothing.
type stallGuard struct{ net.Conn }

func (c stallGuard) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// fetch reads the file from beginning to end over as many connections as it takes.
type fetch struct {
	src   Source
	ctx   context.Context //nolint:containedctx // it is that of one stream, which Read cannot be given
	body  io.ReadCloser
	at    int64 // bytes delivered
	total int64 // 0: unknown
	tries int   // since the last byte
	since time.Time
}

// open returns a reader of the file's bytes. The first request is made by the first Read.
func (s Source) open(ctx context.Context) *fetch {
	if s.Patience == 0 {
		s.Patience = DefaultPatience
	}
	return &fetch{src: s, ctx: ctx, total: s.Size, since: s.Clock.Now()}
}

// skip goes on n bytes later, over another connection.
func (f *fetch) skip(n int64) {
	if n > 0 && f.body != nil {
		f.body.Close()
		f.body = nil
	}
	f.at += n
}

// Close closes the connection.
func (f *fetch) Close() error {
	if f.body == nil {
		return nil
	}
	return f.body.Close()
}

// Read implements io.Reader. Its errors are final.
func (f *fetch) Read(b []byte) (int, error) {
	for {
		if f.total > 0 && f.at >= f.total {
			return 0, io.EOF
		}
		n, err := f.once(b)
		if n > 0 {
			f.at, f.tries, f.since = f.at+int64(n), 0, f.src.Clock.Now()
			return n, nil
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) && f.total == 0 {
			return 0, io.EOF // a server that does not tell the length
		}
		if err := f.retry(err); err != nil {
			return 0, err
		}
	}
}

// once reads from the connection that is open, or opens one.
func (f *fetch) once(b []byte) (int, error) {
	if f.body == nil {
		if err := f.connect(); err != nil {
			return 0, err
		}
	}
	if f.total > 0 {
		b = b[:min(int64(len(b)), f.total-f.at)]
	}
	return f.body.Read(b)
}

// retry waits before the next connection, or returns the final error.
func (f *fetch) retry(err error) error {
	if f.body != nil {
		f.body.Close()
		f.body = nil
	}
	if f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	var final *Error
	if errors.As(err, &final) {
		return final
	}
	if gone := f.src.Clock.Now().Sub(f.since); gone >= f.src.Patience {
		// Not wrapped: to a reader of streams the io.EOF in it would mean that all is well.
		return unavailable("fetch %s: nothing came for %s at byte %d: %v", f.src.URL, gone.Round(time.Second), f.at, err)
	}
	f.tries++
	wait := min(100*time.Millisecond<<min(f.tries, 6), 5*time.Second)
	f.src.Log.Warn("image stream broke; going on where it broke", "byte", f.at, "retry_in", wait.String(), "error", err)
	select {
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	case <-f.src.Clock.After(wait):
		return nil
	}
}

func (f *fetch) connect() error {
	req, err := http.NewRequestWithContext(f.ctx, http.MethodGet, f.src.URL, nil)
	if err != nil {
		return notSupported("fetch image: %w", err)
	}
	if f.at > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", f.at))
	}
	resp, err := f.src.Client.Do(req)
	if err != nil {
		return err
	}
	if err := f.accept(resp); err != nil {
		resp.Body.Close()
		return err
	}
	f.body = resp.Body
	return nil
}

// accept checks that the answer goes on at the right byte of a file of the right length (RFC 9110, 14.4, 15.3.7).
func (f *fetch) accept(resp *http.Response) error {
	from, total := int64(0), resp.ContentLength
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusPartialContent:
		var err error
		if from, total, err = contentRange(resp.Header.Get("Content-Range")); err != nil {
			return err
		}
	case http.StatusRequestedRangeNotSatisfiable:
		return mismatch("the file at %s is shorter than %d bytes", f.src.URL, f.at)
	case http.StatusBadGateway:
		return mismatch("%s cannot be had whole: what the controller keeps of the image is damaged", f.src.URL)
	default:
		return fmt.Errorf("the server answers %s", resp.Status)
	}
	if total > 0 && f.total > 0 && total != f.total {
		return mismatch("the file at %s is of %d bytes, not %d", f.src.URL, total, f.total)
	}
	if f.total == 0 {
		f.total = max(total, 0)
	}
	if from > f.at {
		return fmt.Errorf("the server goes on at byte %d instead of %d", from, f.at)
	}
	_, err := io.CopyN(io.Discard, resp.Body, f.at-from)
	return err
}

// contentRange reads "bytes 5-9/10"; a total of * is 0.
func contentRange(s string) (from, total int64, err error) {
	span, size, ok := strings.Cut(strings.TrimPrefix(s, "bytes "), "/")
	first, _, dash := strings.Cut(span, "-")
	if from, err = strconv.ParseInt(first, 10, 64); !ok || !dash || err != nil || from < 0 {
		return 0, 0, fmt.Errorf("the server answers with the range %q", s)
	}
	if size == "*" {
		return from, 0, nil
	}
	if total, err = strconv.ParseInt(size, 10, 64); err != nil || total <= from {
		return 0, 0, fmt.Errorf("the server answers with the range %q", s)
	}
	return from, total, nil
}
