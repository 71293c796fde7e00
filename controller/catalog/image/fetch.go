package image

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/catalog/oci"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
)

// copyBytes is how much is moved at once.
const copyBytes = 256 << 10

// newClient fetches without a limit on the whole, which depends on the image, but with one on each part. It asks no
// proxy and stays at the host that the URL names: only the allowed URL is fetched.
func newClient(addresses webhook.Policy) *http.Client {
	return &http.Client{CheckRedirect: sameHost, Transport: &http.Transport{
		DialContext:         addresses.Dialer(15*time.Second, nil).DialContext,
		TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: time.Minute,
		// The digest is that of the file, not of what a server makes of it on the way.
		DisableCompression: true,
	}}
}

var errElsewhere = errors.New("it redirects to another host, or from https to http; give the address where the file is")

const maxRedirects = 5

func sameHost(next *http.Request, before []*http.Request) error {
	first := before[0].URL
	if next.URL.Host != first.Host || next.URL.Scheme != first.Scheme || len(before) > maxRedirects {
		return errElsewhere
	}
	return nil
}

// checkSource refuses a URL whose bytes neither TLS nor a digest protects.
func (c *Catalogue) checkSource(im *baremetalv1.Image) error {
	u, err := url.Parse(im.GetUrl())
	if err != nil {
		return urlRefused("the URL cannot be read")
	}
	vouched := im.GetSha256File()+im.GetSha256Source()+im.GetSha256Raw() != ""
	switch u.Scheme {
	case "https":
		return nil
	case "http":
		if vouched {
			return nil
		}
	case oci.Scheme:
		src, err := oci.Parse(im.GetUrl())
		if err != nil {
			return urlRefused("%v", err)
		}
		if vouched || src.Pinned() || !c.cfg.Registries.Plain(src) {
			return nil
		}
	}
	return urlRefused("an image comes over TLS, or its SHA-256 is given")
}

func urlRefused(format string, args ...any) *failure.Error {
	return failure.Invalid("IMAGE_URL_REFUSED", format, args...).WithField("image.url", "not fetched from there")
}

func unavailable(format string, args ...any) *failure.Error {
	return failure.Precondition("IMAGE_UNAVAILABLE", format, args...)
}

// source is where bytes come from. size is their expected number, 0 where unknown, and sum their SHA-256, empty where
// unknown.
type source struct {
	r    io.Reader
	size int64
	sum  string
}

// fetched is what comes from a URL. It ends with an error when nothing comes for a while.
type fetched struct {
	io.ReadCloser
	size int64
	sum  string
	// url is the stored part of its URL.
	url string
}

// open asks for what an image's URL names.
func (c *Catalogue) open(
	ctx context.Context, cancel context.CancelCauseFunc, im *baremetalv1.Image,
) (*fetched, error) {
	ask := c.fetch
	if strings.HasPrefix(im.GetUrl(), oci.Scheme+":") {
		ask = c.pull
	}
	f, err := ask(ctx, im)
	if err != nil {
		return nil, fetchError(ctx, err)
	}
	f.ReadCloser = &watched{ReadCloser: f.ReadCloser, cancel: cancel, clock: c.cfg.Clock, stall: c.cfg.Stall}
	return f, nil
}

// pull asks a registry.
func (c *Catalogue) pull(ctx context.Context, im *baremetalv1.Image) (*fetched, error) {
	src, err := oci.Parse(im.GetUrl())
	if err != nil {
		return nil, err
	}
	f, err := c.cfg.Registries.Open(ctx, src, im.GetArch())
	if err != nil {
		return nil, err
	}
	return &fetched{f.ReadCloser, f.Size, f.SHA256, f.URL}, nil
}

// fetch asks a web server.
func (c *Catalogue) fetch(ctx context.Context, im *baremetalv1.Image) (*fetched, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, im.GetUrl(), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := c.cfg.Client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		status := resp.Status
		return nil, errors.Join(unavailable("the image cannot be fetched: its server answers %s", status), resp.Body.Close())
	}
	return &fetched{resp.Body, max(0, resp.ContentLength), "", withoutQuery(im.GetUrl())}, nil
}

// fetchError types what went wrong before the first byte.
func fetchError(ctx context.Context, err error) error {
	var address *webhook.RefusedError
	var typed *failure.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &address):
		return urlRefused("%s; an admin allows its network under images.allow_networks", address.Error())
	case errors.Is(err, errElsewhere):
		return urlRefused("%s", errElsewhere.Error())
	case errors.As(err, &typed):
		return typed
	}
	return unavailable("the image cannot be fetched: %v", plainURLError(err))
}

// plainURLError leaves the URL out, whose query may be a secret.
func plainURLError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

var errStalled = errors.New("nothing has come for too long")

// watched ends a read that takes too long, by ending the request's context.
type watched struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
	clock  clock.Clock
	stall  time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	t := time.AfterFunc(w.stall, func() { w.cancel(errStalled) })
	defer t.Stop()
	return w.ReadCloser.Read(p)
}

// receive brings all bytes of a source into a file.
func (c *Catalogue) receive(ctx context.Context, src source) (*blob.Writer, error) {
	if src.size > c.cfg.MaxBytes {
		return nil, overLimit(c.cfg.MaxBytes)
	}
	if err := c.cfg.Blobs.Room(src.size); err != nil {
		return nil, err
	}
	w, err := c.cfg.Blobs.Create()
	if err != nil {
		return nil, err
	}
	if err := pour(ctx, w, src, c.cfg.MaxBytes); err != nil {
		w.Release(c.cfg.Logger)
		return nil, err
	}
	if src.sum != "" && src.sum != w.SHA256() {
		w.Release(c.cfg.Logger)
		return nil, failure.Precondition("IMAGE_DIGEST_MISMATCH", "the file has the SHA-256 %s, and its manifest says %s",
			w.SHA256(), src.sum).WithField("image.url", "gives other bytes than the manifest names")
	}
	return w, nil
}

// pour copies a source into a blob. Its errors distinguish faults of the source from ours.
func pour(ctx context.Context, w *blob.Writer, src source, most int64) error {
	buf := make([]byte, copyBytes)
	for {
		n, err := src.r.Read(buf)
		if _, werr := w.Write(buf[:n]); werr != nil {
			return werr
		}
		if w.Size() > most {
			return overLimit(most)
		}
		if src.size > 0 && w.Size() > src.size {
			return unavailable("the file is longer than the %d bytes announced", src.size)
		}
		// A source that was given up may end its answer well.
		if errors.Is(err, io.EOF) && ctx.Err() == nil {
			break
		}
		if err != nil {
			return sourceError(ctx, err, w.Size())
		}
	}
	if w.Size() == 0 {
		return unavailable("the file is empty")
	}
	if w.Size() < src.size {
		return unavailable("the file has ended after %d of %d bytes", w.Size(), src.size)
	}
	return nil
}

func overLimit(most int64) *failure.Error {
	return failure.Precondition("IMAGE_OVER_LIMIT", "the file is larger than %d bytes; an admin raises images.max_bytes",
		most)
}

func sourceError(ctx context.Context, err error, got int64) error {
	var typed *failure.Error
	switch {
	case errors.Is(context.Cause(ctx), errStalled):
		return unavailable("the image's source has stalled after %d bytes", got)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &typed):
		return err
	}
	return unavailable("the file has ended after %d bytes", got).Wrap(err)
}

// withoutQuery returns the stored part of a URL: its query may be a former secret.
func withoutQuery(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	u.RawQuery, u.ForceQuery = "", false
	return u.String()
}
