//go:build bucket

package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/s3"
)

// rig is a bucket of a real server.
type rig struct {
	*Bucket
	t      *testing.T
	server *s3.Server
	spool  string
}

func newRig(t *testing.T, o s3.Options, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, server: s3.Start(t, o), spool: t.TempDir()}
	spool, err := blob.OpenSpool(blob.Config{Path: r.spool})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Name: r.server.Bucket, Host: r.server.Host(), Secure: o.TLS, Region: "us-east-1", Prefix: "fleet/a/",
		PathStyle: true, CredentialsFile: r.server.Credentials(), Spool: spool, Logger: testkit.Logger(t)}
	if o.TLS {
		raw, err := os.ReadFile(r.server.CAFile)
		if err != nil {
			t.Fatal(err)
		}
		c.Roots = x509.NewCertPool()
		c.Roots.AppendCertsFromPEM(raw)
	}
	for _, f := range change {
		f(&c)
	}
	if r.Bucket, err = Open(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func random(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
	return b
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// begin writes a file into the spool. It is closed with the test.
func (r *rig) begin(content []byte) *blob.Writer {
	r.t.Helper()
	w, err := r.Create()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = w.Close() }) // most have been closed
	if _, err := w.Write(content); err != nil {
		r.t.Fatal(err)
	}
	return w
}

func (r *rig) put(content []byte) error {
	w := r.begin(content)
	err := w.Send(r.t.Context())
	if err == nil {
		err = w.Place(r.t.Context())
	}
	return errors.Join(err, w.Close())
}

func (r *rig) get(sum string, offset int64) ([]byte, error) {
	b, _, err := r.Open(r.t.Context(), sum, offset)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(b)
	return got, errors.Join(err, b.Close())
}

func (r *rig) wantReason(err error, reason string) {
	r.t.Helper()
	if !failure.HasReason(err, reason) {
		r.t.Errorf("got %v, want %s", err, reason)
	}
}

// wantNothing fails where anything is left: an object, an upload, a file in the spool.
func (r *rig) wantNothing() {
	r.t.Helper()
	if left := r.server.Objects(); len(left) > 0 {
		r.t.Errorf("objects: %v", left)
	}
	for u := range r.core.ListIncompleteUploads(r.t.Context(), r.cfg.Name, "", true) {
		r.t.Errorf("upload: %+v", u)
	}
	if list, err := os.ReadDir(filepath.Join(r.spool, "incoming")); err != nil || len(list) > 0 {
		r.t.Errorf("spool: %v, %v", list, err)
	}
}

func TestBlobsComeAndGo(t *testing.T) {
	for _, o := range []s3.Options{{}, {TLS: true}} {
		r := newRig(t, o)
		sizes := []int{0, 1, 100_000, leastPart, leastPart + 1, 2*leastPart + 12345}
		var sums []string
		for i, n := range sizes {
			content := random(byte(i), n)
			sum := digestOf(content)
			sums = append(sums, sum)
			if err := r.put(content); err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
			if err := r.put(content); err != nil {
				t.Errorf("%d bytes again: %v", n, err)
			}
			if there, err := r.Has(t.Context(), sum); err != nil || !there {
				t.Errorf("%d bytes: %v, %v", n, there, err)
			}
			for _, at := range []int64{0, 1, int64(n / 2), int64(n) - 1, int64(n)} {
				if at < 0 || at > int64(n) {
					continue
				}
				if got, err := r.get(sum, at); err != nil || !bytes.Equal(got, content[at:]) {
					t.Errorf("%d bytes from %d: %d bytes, %v", n, at, len(got), err)
				}
			}
			for _, at := range []int64{-1, int64(n) + 1} {
				_, err := r.get(sum, at)
				r.wantReason(err, "INVALID_FIELD")
			}
		}
		list, err := r.List(t.Context())
		if err != nil || len(list) != len(sizes) {
			t.Errorf("%v, %v", list, err)
		}
		for _, b := range list {
			if i := slices.Index(sums, b.SHA256); i < 0 || b.Size != int64(sizes[i]) {
				t.Errorf("listed: %+v", b)
			}
		}
		for _, sum := range sums {
			if err := errors.Join(r.Remove(t.Context(), sum), r.Remove(t.Context(), sum)); err != nil {
				t.Error(err)
			}
			_, err := r.get(sum, 0)
			r.wantReason(err, "BLOB_NOT_FOUND")
			_, err = r.get(sum, 1)
			r.wantReason(err, "BLOB_NOT_FOUND")
		}
		r.wantNothing()
	}
}

// TestNobodySeesAFileBeforeItIsPlaced: neither a large one, whose parts are all there, nor one that is given up.
func TestNobodySeesAFileBeforeItIsPlaced(t *testing.T) {
	r := newRig(t, s3.Options{})
	content := random(1, 3*leastPart)
	w := r.begin(content)
	if err := w.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if there, err := r.Has(t.Context(), digestOf(content)); err != nil || there {
		t.Errorf("%v, %v", there, err)
	}
	if list, err := r.List(t.Context()); err != nil || len(list) > 0 || len(r.server.Objects()) > 0 {
		t.Errorf("%v, %v, %v", list, err, r.server.Objects())
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	r.wantNothing()
}

// TestAFileThatHasChangedIsNotPlaced: the digest is compared with the bytes that are sent, not with those that were
// written once.
func TestAFileThatHasChangedIsNotPlaced(t *testing.T) {
	for _, n := range []int{1000, 2 * leastPart} {
		r := newRig(t, s3.Options{})
		w := r.begin(random(1, n))
		files, err := filepath.Glob(filepath.Join(r.spool, "incoming", "*"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		f, err := os.OpenFile(files[0], os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("damage"), int64(n)-10); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		err = w.Send(t.Context())
		if err == nil {
			err = w.Place(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), "has changed after it was written") {
			t.Errorf("%d bytes: %v", n, err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		r.wantNothing()
	}
}

// TestTheServerDiesDuringAnIngest: the call fails with a typed error and
// leaves no object; it succeeds once the server is back.
func TestTheServerDiesDuringAnIngest(t *testing.T) {
	content := random(1, 3*leastPart)
	for _, point := range []string{"bucket.before-part", "bucket.before-complete"} {
		r := newRig(t, s3.Options{}, func(c *Config) { c.Tries = 2 })
		restore := failpoint.Set(point, failpoint.Call(func(context.Context) error { r.server.Kill(); return nil }).At(1))
		w := r.begin(content)
		err := w.Send(t.Context())
		if err == nil {
			err = w.Place(t.Context())
		}
		restore()
		r.wantReason(err, "IMAGE_STORE_UNAVAILABLE")
		if !failure.Retryable(err) {
			t.Errorf("%s: %v cannot be tried again", point, err)
		}
		r.server.Again()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		r.wantNothing()
		if err := r.put(content); err != nil {
			t.Errorf("%s: again: %v", point, err)
		}
		if got, err := r.get(digestOf(content), 0); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", point, len(got), err)
		}
	}
}

// TestTheServerRestartsDuringAnIngest: no caller notices a server that is back soon.
func TestTheServerRestartsDuringAnIngest(t *testing.T) {
	r := newRig(t, s3.Options{})
	content := random(1, 4*leastPart)
	for _, point := range []string{"bucket.before-part", "bucket.before-complete"} {
		restore := failpoint.Set(point, failpoint.Call(func(context.Context) error {
			r.server.Kill()
			r.server.Again()
			return nil
		}).At(1))
		err := r.put(content)
		restore()
		if err != nil {
			t.Errorf("%s: %v", point, err)
		}
		if got, err := r.get(digestOf(content), 0); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", point, len(got), err)
		}
	}
}

// TestTheServerDiesDuringAServe: the received bytes are right, the end is an error, and the rest can be read from there
// on.
func TestTheServerDiesDuringAServe(t *testing.T) {
	r := newRig(t, s3.Options{}, func(c *Config) { c.Tries = 1 })
	content := random(1, 40<<20)
	if err := r.put(content); err != nil {
		t.Fatal(err)
	}
	b, size, err := r.Open(t.Context(), digestOf(content), 0)
	if err != nil || size != int64(len(content)) {
		t.Fatal(size, err)
	}
	got := make([]byte, 1<<20)
	if _, err := io.ReadFull(b, got); err != nil {
		t.Fatal(err)
	}
	r.server.Kill()
	rest, err := io.ReadAll(b)
	r.wantReason(err, "IMAGE_STORE_UNAVAILABLE")
	if got = append(got, rest...); len(got) >= len(content) || !bytes.Equal(got, content[:len(got)]) {
		t.Errorf("%d bytes, some of them wrong", len(got))
	}
	if err := b.Close(); err != nil {
		t.Log(err)
	}
	_, err = r.get(digestOf(content), int64(len(got)))
	r.wantReason(err, "IMAGE_STORE_UNAVAILABLE")
	r.server.Again()
	if rest, err = r.get(digestOf(content), int64(len(got))); err != nil || !bytes.Equal(append(got, rest...), content) {
		t.Errorf("the rest: %d bytes, %v", len(rest), err)
	}
}

func TestAServerThatStallsIsGivenUp(t *testing.T) {
	r := newRig(t, s3.Options{}, func(c *Config) { c.Tries = 1 })
	content := random(1, 40<<20)
	if err := r.put(content); err != nil {
		t.Fatal(err)
	}
	b, _, err := r.Open(t.Context(), digestOf(content), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // its server has stalled
	b.(*body).stall = 300 * time.Millisecond
	r.server.Stand()
	defer r.server.Continue()
	got, err := io.ReadAll(b)
	r.wantReason(err, "IMAGE_STORE_UNAVAILABLE")
	if !bytes.Equal(got, content[:len(got)]) {
		t.Error("wrong bytes")
	}
}

// TestTidyEndsOldUploadsAlone: another controller may be at a young one.
func TestTidyEndsOldUploadsAlone(t *testing.T) {
	r := newRig(t, s3.Options{})
	content := random(1, 2*leastPart)
	w := r.begin(content)
	if err := w.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Place(t.Context()); err != nil {
		t.Errorf("an upload under way was ended: %v", err)
	}
	dead := r.begin(random(2, 2*leastPart))
	if err := dead.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.endUploads(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	err := dead.Place(t.Context())
	r.wantReason(err, "IMAGE_STORE_UNAVAILABLE")
	if err := errors.Join(w.Close(), dead.Close()); err != nil {
		t.Error(err)
	}
	if objects := r.server.Objects(); !slices.Equal(objects, []string{"fleet/a/" + digestOf(content)}) {
		t.Errorf("objects: %v", objects)
	}
}
