package image_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/internal/clock"
)

// fetchAll reads what a handler serves.
func fetchAll(t testing.TB, size int64, patience time.Duration, h http.HandlerFunc) ([]byte, error) {
	srv := httptest.NewServer(h)
	defer srv.Close()
	src := image.Source{
		URL: srv.URL, Size: size, Client: image.NewClient(), Clock: hurried{clock.Real()}, Log: slog.New(slog.DiscardHandler),
		Patience: patience,
	}
	defer src.Client.CloseIdleConnections()
	r, err := image.Open(t.Context(), src, image.Raw)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// hurried waits a fiftieth of the time.
type hurried struct{ clock.Clock }

func (h hurried) After(d time.Duration) <-chan time.Time { return h.Clock.After(d / 50) }

// flaky serves content in bits: each connection breaks after the next of the lengths.
type flaky struct {
	content  []byte
	breaks   []int
	noRanges bool
	asked    []string
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.asked = append(f.asked, r.Header.Get("Range"))
	if len(f.breaks) == 0 {
		f.serve(w, r)
		return
	}
	n := f.breaks[0]
	f.breaks = f.breaks[1:]
	f.serve(&cutter{ResponseWriter: w, left: n}, r)
}

func (f *flaky) serve(w http.ResponseWriter, r *http.Request) {
	if f.noRanges {
		w.Header().Set("Content-Length", fmt.Sprint(len(f.content)))
		w.Write(f.content)
		return
	}
	http.ServeContent(w, r, "", noTime, bytes.NewReader(f.content))
}

// cutter ends the connection in the middle.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(b []byte) (int, error) {
	n := min(len(b), c.left)
	c.ResponseWriter.Write(b[:n])
	if c.left -= n; c.left == 0 {
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, nil
}

func TestFetchGoesOnWhereItBroke(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		content := make([]byte, rapid.IntRange(1, 200_000).Draw(rt, "size"))
		rand.NewChaCha8([32]byte{byte(len(content))}).Read(content)
		f := &flaky{
			content: content, noRanges: rapid.Bool().Draw(rt, "no ranges"),
			breaks: rapid.SliceOfN(rapid.IntRange(0, 100_000), 0, 3).Draw(rt, "breaks"),
		}
		size := int64(len(content)) * int64(rapid.IntRange(0, 1).Draw(rt, "size known"))
		got, err := fetchAll(t, size, time.Minute, f.ServeHTTP)
		if err != nil || !bytes.Equal(got, content) {
			rt.Fatalf("%d bytes of %d, %v; asked for %q", len(got), len(content), err, f.asked)
		}
	})
}

func TestFetchFails(t *testing.T) {
	t.Parallel()
	content := []byte(strings.Repeat("x", 10_000))
	mismatch, gone := baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, baremetalv1.Reason_IMAGE_UNAVAILABLE
	for name, c := range map[string]struct {
		want  baremetalv1.Reason
		serve http.HandlerFunc
	}{
		"another length": {mismatch, (&flaky{content: content[1:]}).ServeHTTP},
		"another later":  {mismatch, swapped(content, content[:9_000])},
		"much shorter":   {mismatch, swapped(content, content[:10])},
		"always broken":  {gone, func(w http.ResponseWriter, _ *http.Request) { (&cutter{ResponseWriter: w}).Write(nil) }},
		"a page of HTML": {gone,
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not here", http.StatusServiceUnavailable) }},
		"damaged there": {mismatch,
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "damaged", http.StatusBadGateway) }},
		"rubbish of ranges": {gone, badRange(content, "bytes 5-9")},
		"too far":           {gone, badRange(content, "bytes 9000-9999/10000")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := fetchAll(t, int64(len(content)), 300*time.Millisecond, c.serve); reasonOf(err) != c.want {
				t.Errorf("%d bytes, %v (%s), want %s", len(got), err, reasonOf(err), c.want)
			}
		})
	}
}

// swapped serves half of one file, and then another.
func swapped(first, then []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") == "" {
			(&flaky{content: first}).serve(&cutter{ResponseWriter: w, left: len(first) / 2}, r)
		}
		(&flaky{content: then}).serve(w, r)
	}
}

func badRange(content []byte, says string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") == "" {
			(&flaky{content: content}).serve(&cutter{ResponseWriter: w, left: 5_000}, r)
		}
		w.Header().Set("Content-Range", says)
		w.WriteHeader(http.StatusPartialContent)
	}
}

func TestFetchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	reached := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		w.(http.Flusher).Flush()
		close(reached)
		<-r.Context().Done()
	}))
	defer srv.Close()
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-reached
		cancel(stopped)
	}()
	src := image.Source{URL: srv.URL, Client: image.NewClient(), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)}
	r, err := image.Open(ctx, src, image.Raw)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadAll(r); !errors.Is(err, stopped) {
		t.Errorf("got %v", err)
	}
}

// The server dies in the middle of a write and comes back, and the disk is none the wiser.
func TestWriteSurvivesADyingServer(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.patience = time.Minute
	r.handler = &flaky{content: packed(), breaks: []int{100_000, 0, 0, 1_000_000, 7}}
	got, err := r.write(t.Context(), t)
	if err != nil {
		t.Fatal(err)
	}
	mustBoot(t, r, got)
	r = newRig()
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Range") != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		(&flaky{content: packed(), breaks: []int{2_000_000}}).ServeHTTP(w, req)
	})
	if _, err := r.write(t.Context(), t); reasonOf(err) != baremetalv1.Reason_IMAGE_UNAVAILABLE {
		t.Fatalf("a server that never came back: %v", err)
	}
	mustNotBoot(t, r.disk)
}
