package image

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/catalog/oci"
	"github.com/ingot-metal/ingot/controller/catalog/oci/ocitest"
)

// TestImagesFromARegistry: every format comes in as from a file, and the entry says exactly which artefact it was.
func TestImagesFromARegistry(t *testing.T) {
	t.Parallel()
	reg := ocitest.Start(t)
	r := newRig(t, fetchesFrom(reg.Server))
	raw := disk(1, diskSize)
	for name, file := range map[string][]byte{"raw": raw, "raw.zst": packed(t, raw), "qcow2": qemuImg(t, raw)} {
		pushed := reg.Push(name, ocitest.Layer{Title: "disk." + name, MediaType: "application/octet-stream", Content: file})
		im, err := r.add(name, reg.URL(":"+name))
		if err != nil || im.GetSha256Raw() != digestOf(raw) || im.GetUrl() != reg.URL(":"+name+"@"+pushed.Digest.String()) {
			t.Errorf("%s: %v, %v", name, im, err)
		}
		// Once more, by what is kept.
		if again, err := r.add(name, im.GetUrl()); err != nil || again.GetSha256File() != im.GetSha256File() {
			t.Errorf("%s once more: %v, %v", name, again, err)
		}
	}
	reg.Push("other", ocitest.Layer{MediaType: "application/octet-stream", Content: disk(2, diskSize)})
	_, err := r.add("raw", reg.URL(":other"))
	wantReason(t, err, "IMAGE_EXISTS")
	r.wantTidy()
}

// TestFilesOfARegistryThatAreNotWhatTheManifestSays: nothing of them stays.
func TestFilesOfARegistryThatAreNotWhatTheManifestSays(t *testing.T) {
	t.Parallel()
	reg := ocitest.Start(t)
	raw := disk(1, diskSize)
	other := bytes.Clone(raw)
	other[4<<20] ^= 1
	reg.Push("12", ocitest.Layer{MediaType: "application/octet-stream", Content: raw})
	reg.Push("page", ocitest.Layer{MediaType: "text/html", Content: []byte("<html>sign in</html>")})
	r := newRig(t, fetchesFrom(reg.Server), func(c *Config) { c.Stall = time.Second })
	body := func(give func(w http.ResponseWriter)) {
		reg.Lie(func(w http.ResponseWriter, q *http.Request) bool {
			if !strings.Contains(q.URL.Path, "/blobs/") {
				return false
			}
			give(w)
			return true
		})
	}
	released := make(chan struct{})
	defer close(released)
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	for name, c := range map[string]struct {
		give   func(w http.ResponseWriter)
		reason string
	}{
		"other bytes": {func(w http.ResponseWriter) { _, _ = w.Write(other) }, "IMAGE_DIGEST_MISMATCH"},
		"fewer":       {func(w http.ResponseWriter) { flush(w); _, _ = w.Write(raw[:1000]) }, "IMAGE_UNAVAILABLE"},
		"more":        {func(w http.ResponseWriter) { flush(w); _, _ = w.Write(raw); _, _ = w.Write(raw) }, "IMAGE_UNAVAILABLE"},
		"cut off": {func(w http.ResponseWriter) {
			_, _ = w.Write(raw[:1000])
			flush(w)
			panic(http.ErrAbortHandler)
		}, "IMAGE_UNAVAILABLE"},
		"stalled": {func(w http.ResponseWriter) {
			_, _ = w.Write(raw[:1000])
			flush(w)
			<-released // httptest waits for its handlers
		}, "IMAGE_UNAVAILABLE"},
	} {
		body(c.give)
		_, err := r.add("x", reg.URL(":12"))
		t.Run(name, func(t *testing.T) { wantReason(t, err, c.reason) })
	}
	reg.Lie(nil)
	_, err := r.add("x", reg.URL(":page"))
	wantReason(t, err, "IMAGE_UNSUPPORTED")
	r.Catalogue = New(Config{Blobs: r.blobs, Store: r.store.Catalog, Client: r.cfg.Client, MaxBytes: diskSize - 1})
	_, err = r.add("x", reg.URL(":12"))
	wantReason(t, err, "IMAGE_OVER_LIMIT")
	r.wantTidy()
}

// TestRegistriesAreAskedOnlyWhereTheyMay: by the rules of every other URL.
func TestRegistriesAreAskedOnlyWhereTheyMay(t *testing.T) {
	t.Parallel()
	reg := ocitest.Start(t)
	pushed := reg.Push("12", ocitest.Layer{MediaType: "application/octet-stream", Content: disk(1, diskSize)})
	reg.Lie(func(http.ResponseWriter, *http.Request) bool { t.Error("it was asked"); return false })
	r := newRig(t)
	for _, url := range []string{
		reg.URL(":12"), reg.URL("@" + pushed.Digest.String()), "oci://169.254.169.254/latest:1", "oci://10.0.0.1/a:1",
		"oci://[::1]/a:1", "oci://r.example.org/a", "oci://user@r.example.org/a:1",
	} {
		_, err := r.add("x", url)
		wantReason(t, err, "IMAGE_URL_REFUSED")
	}
	// Without TLS only what has a digest.
	r.Catalogue = New(Config{Blobs: r.blobs, Store: r.store.Catalog,
		Registries: oci.Client{PlainHTTP: []string{"r.example.org"}}})
	_, err := r.add("x", "oci://r.example.org/a:1")
	wantReason(t, err, "IMAGE_URL_REFUSED")
}
