package image

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/webhook"
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
	srv := httptest.NewTLSServer(mux)
	defer srv.Close()
	r := newRig(t, fetchesFrom(srv))
	for path, reason := range map[string]string{
		"/missing": "IMAGE_UNAVAILABLE", "/loop": "IMAGE_URL_REFUSED", "/other": "IMAGE_URL_REFUSED",
		"/short": "IMAGE_UNAVAILABLE",
		"/cut":   "IMAGE_UNAVAILABLE", "/empty": "IMAGE_UNAVAILABLE", "/page": "IMAGE_UNSUPPORTED",
	} {
		_, err := r.add("x", srv.URL+path+"?token=hidden")
		wantReason(t, err, reason)
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: the error shows the query: %v", path, err)
		}
	}
	_, err := r.add("x", "https://127.0.0.1:1/")
	wantReason(t, err, "IMAGE_UNAVAILABLE")
	r.wantTidy()
	for _, path := range []string{"/good", "/moved"} {
		if im, err := r.add(path[1:], srv.URL+path+"?token=hidden"); err != nil || im.GetSha256Raw() != digestOf(raw) ||
			im.GetUrl() != srv.URL+path {
			t.Errorf("%s: %v, %v", path, im, err)
		}
	}
	r.wantTidy()
}

// TestASourceThatStalls: it is given up, and so is one whose caller has gone.
func TestASourceThatStalls(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = w.Write(make([]byte, 4096))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-q.Context().Done():
		case <-released:
		}
	}))
	defer srv.Close()
	defer close(released)
	r := newRig(t, fetchesFrom(srv), func(c *Config) { c.Stall = 50 * time.Millisecond })
	_, err := r.add("x", srv.URL)
	wantReason(t, err, "IMAGE_UNAVAILABLE")
	if err != nil && !strings.Contains(err.Error(), "stalled after 4096 bytes") {
		t.Errorf("%v", err)
	}
	r.Catalogue = New(Config{Blobs: r.blobs, Store: r.store.Catalog, Client: r.cfg.Client})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Add(ctx, &pb.Image{ImageRef: "x", Kind: "os", Url: srv.URL}, "tester"); err == nil || ctx.Err() == nil {
		t.Errorf("the caller has gone: %v", err)
	}
	r.wantTidy()
}

// fetchesFrom allows loopback, as a laboratory does by images.allow_networks, and trusts the server's certificate.
func fetchesFrom(srv *httptest.Server) func(*Config) {
	return func(c *Config) {
		c.Client = newClient(webhook.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, DenyPrivate: true})
		c.Client.Transport.(*http.Transport).TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig
	}
}

// An image that names an address of the inside makes the controller fetch nothing from there.
func TestImagesComeOnlyFromWhereTheyMay(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, "secret of the inside")
	}))
	defer inside.Close()
	digest := strings.Repeat("ab", 32)
	add := func(r *rig, url, sum string) error {
		_, err := r.Add(t.Context(), &pb.Image{ImageRef: "x", Kind: "installer-initrd", Arch: "amd64", Url: url,
			Sha256File: sum}, "tester")
		return err
	}
	r := newRig(t)
	_, port, _ := net.SplitHostPort(inside.Listener.Addr().String())
	for _, url := range []string{
		inside.URL, "http://localhost:" + port, "http://[::1]:" + port, "http://169.254.169.254/latest/meta-data",
		"http://10.0.0.1/",
		"http://[::ffff:127.0.0.1]:" + port, "http://0.0.0.0:" + port,
	} {
		wantReason(t, add(r, url, digest), "IMAGE_URL_REFUSED")
	}
	wantReason(t, add(r, "http://images.example.org/x", ""), "IMAGE_URL_REFUSED")
	wantReason(t, add(r, "file:///etc/passwd", digest), "IMAGE_URL_REFUSED")
	if n := asked.Load(); n != 0 {
		t.Errorf("the inside was asked %d times", n)
	}
	door := httptest.NewTLSServer(http.RedirectHandler(inside.URL, http.StatusFound))
	defer door.Close()
	wantReason(t, add(newRig(t, fetchesFrom(door)), door.URL, digest), "IMAGE_URL_REFUSED")
	if n := asked.Load(); n != 0 {
		t.Errorf("a redirect reached the inside %d times", n)
	}
}

// What machines boot with all rights looks like it, and no file is larger than the bound.
func TestAKernelLooksLikeAKernel(t *testing.T) {
	t.Parallel()
	bzImage, arm, efi := make([]byte, 4096), make([]byte, 4096), make([]byte, 4096)
	copy(bzImage[0x1fe:], "\x55\xaa")
	copy(bzImage[0x202:], "HdrS")
	copy(arm[0x38:], "ARM\x64")
	copy(efi, "MZ")
	efi[0x3c] = 0x80
	copy(efi[0x80:], "PE\x00\x00")
	files := map[string][]byte{
		"bzImage": bzImage, "arm": arm, "efi": efi, "cpio": []byte("070701 and the rest"), "gzip": {0x1f, 0x8b, 8},
		"xz":  []byte("\xfd7zXZ\x00"),
		"lz4": {0x02, 0x21, 0x4c, 0x18}, "zstd": {0x28, 0xb5, 0x2f, 0xfd}, "script": []byte("#!/bin/sh\nrm -rf /\n"),
		"dos":  []byte("MZ"),
		"page": []byte("<html>sign in</html>"),
	}
	good := map[string]string{
		"installer-kernel": "bzImage arm efi", "installer-initrd": "cpio gzip xz lz4 zstd", "installer-uki": "efi",
	}
	r := newRig(t)
	for kind, fits := range good {
		for name, file := range files {
			_, err := r.put(&pb.Image{ImageRef: strings.ToLower(kind + "-" + name), Kind: kind, Arch: "amd64"}, file)
			if slices.Contains(strings.Fields(fits), name) {
				if err != nil {
					t.Errorf("%s as %s: %v", name, kind, err)
				}
				continue
			}
			wantReason(t, err, "IMAGE_UNSUPPORTED")
		}
	}
	small := newRig(t, func(c *Config) { c.MaxBytes = 1000 })
	_, err := small.put(&pb.Image{ImageRef: "big", Kind: "installer-initrd", Arch: "amd64"},
		append([]byte("070701"), make([]byte, 1000)...))
	wantReason(t, err, "IMAGE_OVER_LIMIT")
	small.wantTidy()
}
