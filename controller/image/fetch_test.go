package image

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func (r *rig) add(ref, url string) (*pb.Image, error) {
	return r.Add(r.t.Context(), &pb.Image{ImageRef: ref, Kind: "os", Arch: "amd64", Url: url}, "tester")
}

func TestFetch(t *testing.T) {
	t.Parallel()
	raw := disk(1, diskSize)
	file := packed(t, raw)
	mux := http.NewServeMux()
	mux.HandleFunc("/good", func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Accept-Encoding") != "" {
			t.Error("the file may come encoded")
		}
		_, _ = w.Write(file)
	})
	mux.Handle("/moved", http.RedirectHandler("/good", http.StatusFound))
	mux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	mux.Handle("/other", http.RedirectHandler("file:///etc/passwd", http.StatusFound))
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(file[:1000])
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(file[:1000])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/empty", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("<p>Sign in first</p>", 1000))
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	r := newRig(t)
	for path, reason := range map[string]string{
		"/missing": "IMAGE_UNAVAILABLE", "/loop": "IMAGE_UNAVAILABLE", "/other": "IMAGE_UNAVAILABLE", "/short": "IMAGE_UNAVAILABLE",
		"/cut": "IMAGE_UNAVAILABLE", "/empty": "IMAGE_UNAVAILABLE", "/page": "IMAGE_UNSUPPORTED",
	} {
		_, err := r.add("x", srv.URL+path+"?token=hidden")
		wantReason(t, err, reason)
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: the error shows the query: %v", path, err)
		}
	}
	_, err := r.add("x", "http://127.0.0.1:1/")
	wantReason(t, err, "IMAGE_UNAVAILABLE")
	r.wantTidy()
	for _, path := range []string{"/good", "/moved"} {
		if im, err := r.add(path[1:], srv.URL+path+"?token=hidden"); err != nil || im.GetSha256Raw() != digestOf(raw) || im.GetUrl() != srv.URL+path {
			t.Errorf("%s: %v, %v", path, im, err)
		}
	}
	r.wantTidy()
}

// TestASourceThatStalls: it is given up, and so is one whose caller has gone.
func TestASourceThatStalls(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = w.Write(make([]byte, 4096))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-q.Context().Done():
		case <-released:
		}
	}))
	defer srv.Close()
	defer close(released)
	r := newRig(t, func(c *Config) { c.Stall = 50 * time.Millisecond })
	_, err := r.add("x", srv.URL)
	wantReason(t, err, "IMAGE_UNAVAILABLE")
	if err != nil && !strings.Contains(err.Error(), "stalled after 4096 bytes") {
		t.Errorf("%v", err)
	}
	r.Catalogue = New(Config{Blobs: r.blobs, Store: r.store})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Add(ctx, &pb.Image{ImageRef: "x", Kind: "os", Url: srv.URL}, "tester"); err == nil || ctx.Err() == nil {
		t.Errorf("the caller has gone: %v", err)
	}
	r.wantTidy()
}
