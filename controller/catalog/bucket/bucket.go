package bucket

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/ingot-metal/ingot/controller/catalog/blob"
)

const (
	// answerTime bounds the wait for the head of an answer. CompleteMultipartUpload of a large file may take long.
	answerTime = time.Minute
	// stallTime is how long a body may send nothing.
	stallTime = 30 * time.Second
	// tries of one request, with waits between that add up to some seconds.
	tries = 6
	// staleAfter is when an upload counts as one whose controller has died.
	staleAfter = 24 * time.Hour
)

// Config has the address and the credentials of the bucket. All but Roots and Logger is required.
type Config struct {
	Name   string
	Host   string
	Secure bool
	Region string
	Prefix string
	// PathStyle puts the bucket's name into the path of a URL.
	PathStyle       bool
	CredentialsFile string
	Roots           *x509.CertPool
	// Spool is where files are until they are whole; nil where nothing comes in.
	Spool  *blob.Spool
	Logger *slog.Logger
	// Tries of one request; 0 means 6.
	Tries int
}

// Bucket is a blob.Store.
type Bucket struct {
	*blob.Spool
	core   *minio.Core
	cfg    Config
	skewed *skewed
}

// Open reads the credentials. It asks the service nothing.
func Open(c Config) (*Bucket, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Tries == 0 {
		c.Tries = tries
	}
	keys := &keyFile{path: c.CredentialsFile}
	if _, err := keys.Retrieve(); err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupDNS
	if c.PathStyle {
		lookup = minio.BucketLookupPath
	}
	watch := &skewed{RoundTripper: transport(c.Roots)}
	core, err := minio.NewCore(c.Host, &minio.Options{
		Creds: credentials.New(keys), Secure: c.Secure, Region: c.Region, BucketLookup: lookup, Transport: watch,
		MaxRetries: c.Tries,
	})
	if err != nil {
		return nil, fmt.Errorf("open the bucket: %w", err)
	}
	return &Bucket{Spool: c.Spool, core: core, cfg: c, skewed: watch}, nil
}

// transport asks no proxy: what leads to the bucket is what the configuration names.
func transport(roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: answerTime, IdleConnTimeout: time.Minute,
		MaxIdleConnsPerHost: 16,
		// The digest is that of the file, not of what a server makes of it on the way.
		DisableCompression: true,
	}
}

// Close closes unused connections.
func (b *Bucket) Close() { b.skewed.RoundTripper.(*http.Transport).CloseIdleConnections() }

func (b *Bucket) name(sha256 string) string { return b.cfg.Prefix + sha256 }

// Open implements blob.Store.
func (b *Bucket) Open(ctx context.Context, sha256 string, offset int64) (io.ReadCloser, int64, error) {
	if !blob.IsDigest(sha256) {
		return nil, 0, blob.NotFound(sha256)
	}
	if offset < 0 {
		return nil, 0, b.outside(ctx, sha256, offset)
	}
	o := minio.GetObjectOptions{}
	if offset > 0 {
		o.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	rc, info, header, err := b.core.GetObject(ctx, b.cfg.Name, b.name(sha256), o)
	if err != nil {
		defer cancel(nil)
		if isOutside(err) {
			return b.end(ctx, sha256, offset)
		}
		return nil, 0, failed(ctx, "read", sha256, err)
	}
	size, err := wholeSize(info.Size, header.Get("Content-Range"), offset)
	if err != nil {
		cancel(nil)
		_ = rc.Close() // nothing of it is read
		return nil, 0, err
	}
	return &body{rc: rc, left: size - offset, ctx: ctx, cancel: cancel, stall: stallTime, sha256: sha256}, size, nil
}

// end returns the reader behind the last byte: an empty one, or an error.
func (b *Bucket) end(ctx context.Context, sha256 string, offset int64) (io.ReadCloser, int64, error) {
	size, err := b.size(ctx, sha256)
	if err != nil {
		return nil, 0, err
	}
	if err := blob.Outside(offset, size); err != nil {
		return nil, 0, err
	}
	if offset < size {
		return nil, 0, wrong("the service has not given bytes %d to %d", offset, size)
	}
	return io.NopCloser(strings.NewReader("")), size, nil
}

func (b *Bucket) outside(ctx context.Context, sha256 string, offset int64) error {
	size, err := b.size(ctx, sha256)
	if err != nil {
		return err
	}
	return blob.Outside(offset, size)
}

func (b *Bucket) size(ctx context.Context, sha256 string) (int64, error) {
	info, err := b.core.StatObject(ctx, b.cfg.Name, b.name(sha256), minio.StatObjectOptions{})
	if err != nil {
		return 0, failed(ctx, "look at", sha256, err)
	}
	return info.Size, nil
}

// wholeSize is that of an object of which the answer holds length bytes, from offset on. A service that gave other
// bytes than were asked for is not believed.
func wholeSize(length int64, contentRange string, offset int64) (int64, error) {
	if offset == 0 && contentRange == "" {
		return length, nil
	}
	spec, whole, _ := strings.Cut(strings.TrimPrefix(contentRange, "bytes "), "/")
	first, last, _ := strings.Cut(spec, "-")
	from, err1 := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(last, 10, 64)
	size, err3 := strconv.ParseInt(whole, 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || from != offset || to != size-1 || length != size-offset {
		return 0, wrong(
			"the service has answered with range %.80q of %d bytes to a request from byte %d",
			contentRange,
			length,
			offset,
		)
	}
	return size, nil
}

// Has implements blob.Store.
func (b *Bucket) Has(ctx context.Context, sha256 string) (bool, error) {
	if !blob.IsDigest(sha256) {
		return false, nil
	}
	_, err := b.size(ctx, sha256)
	if isNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Remove implements blob.Store.
func (b *Bucket) Remove(ctx context.Context, sha256 string) error {
	if !blob.IsDigest(sha256) {
		return nil
	}
	err := b.core.RemoveObject(ctx, b.cfg.Name, b.name(sha256), minio.RemoveObjectOptions{})
	if err = failed(ctx, "remove", sha256, err); isNotFound(err) {
		return nil
	}
	return err
}

// List implements blob.Store.
func (b *Bucket) List(ctx context.Context) (out []blob.Info, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the lister
	defer cancel()
	for o := range b.core.Client.ListObjects(ctx, b.cfg.Name, minio.ListObjectsOptions{Prefix: b.cfg.Prefix}) {
		if o.Err != nil {
			return nil, failed(ctx, "list", "", o.Err)
		}
		if sum := strings.TrimPrefix(o.Key, b.cfg.Prefix); blob.IsDigest(sum) {
			out = append(out, blob.Info{SHA256: sum, Size: o.Size})
		}
	}
	return out, nil
}

// Tidy implements blob.Store: it ends uploads that were abandoned.
func (b *Bucket) Tidy(ctx context.Context) error {
	if err := b.Spool.Tidy(); err != nil {
		return err
	}
	return b.endUploads(ctx, time.Now().Add(-staleAfter))
}

// endUploads ends those that were begun before a moment.
func (b *Bucket) endUploads(ctx context.Context, before time.Time) error {
	ctx, cancel := context.WithCancel(ctx) // ends the lister
	defer cancel()
	for u := range b.core.ListIncompleteUploads(ctx, b.cfg.Name, b.cfg.Prefix, true) {
		if u.Err != nil {
			return failed(ctx, "list the uploads of", "", u.Err)
		}
		if !blob.IsDigest(strings.TrimPrefix(u.Key, b.cfg.Prefix)) || !u.Initiated.Before(before) {
			continue
		}
		if err := b.core.AbortMultipartUpload(ctx, b.cfg.Name, u.Key, u.UploadID); err != nil && !isGone(err) {
			return failed(ctx, "end an old upload to", "", err)
		}
		b.cfg.Logger.InfoContext(ctx, "ended an upload that was not continued", "object", u.Key, "begun", u.Initiated)
	}
	return nil
}
