package oci_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ingot-metal/ingot/controller/catalog/oci"
	"github.com/ingot-metal/ingot/controller/catalog/oci/ocitest"
	"github.com/ingot-metal/ingot/internal/failure"
)

func clientOf(r *ocitest.Registry) oci.Client { return oci.Client{Transport: r.Client().Transport} }

// open reads what a URL names to its end.
func open(t *testing.T, c oci.Client, url, arch string) (content []byte, f *oci.File, err error) {
	t.Helper()
	src, err := oci.Parse(url)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	if f, err = c.Open(t.Context(), src, arch); err != nil {
		return nil, nil, err
	}
	defer f.Close()
	content, err = io.ReadAll(f)
	return content, f, err
}

func wantReason(t *testing.T, what string, err error, reason, text string) {
	t.Helper()
	if !failure.HasReason(err, reason) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want %s with %q", what, err, reason, text)
	}
}

func TestParse(t *testing.T) {
	sum := "@sha256:" + strings.Repeat("ab", 32)
	for url, pinned := range map[string]bool{
		"oci://registry.example.org/debian:12": false, "oci://r:5000/a/b/c:v1.2_3-x": false, "oci://r/a" + sum: true,
		"oci://r/a:12" + sum: true, "oci://[::1]:5000/a:1": false, "oci://r/a:1?layer=disk.raw.zst": false,
	} {
		s, err := oci.Parse(url)
		if err != nil || s.Pinned() != pinned {
			t.Errorf("%s: %v, %v", url, s.Pinned(), err)
		}
	}
	for _, url := range []string{
		"", "oci://", "oci://r", "oci://r/", "oci://r/a", "oci:r/a:1", "https://r/a:1", "oci://r/A:1", "oci://r/a:1#x",
		"oci://u:p@r/a:1", "oci://r/a:..", "oci://r/a/../b:1", "oci://r/a%2fb:1", "oci://r/a@sha256:12", "oci://r/a:1?x=y",
		"oci://r/a:1?layer=", "oci://r/a:1?layer=a&layer=b", "oci://r/a:1?layer=a&x=y",
		"oci://r/a@sha512:" + strings.Repeat("ab", 64),
	} {
		if s, err := oci.Parse(url); err == nil {
			t.Errorf("%s was taken: %+v", url, s)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	r := ocitest.Start(t)
	disk, notes, arm := []byte("a disk"), []byte("notes"), []byte("another disk")
	one := r.Push("12", ocitest.Layer{Title: "disk.raw", MediaType: "application/vnd.ingot.disk", Content: disk})
	several := r.Push("several", ocitest.Layer{Title: "notes.txt", MediaType: "text/plain", Content: notes},
		ocitest.Layer{Title: "disk.raw", MediaType: "application/vnd.ingot.disk", Content: disk})
	other := r.Push("arm", ocitest.Layer{MediaType: "application/vnd.ingot.disk", Content: arm})
	one.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"}
	other.Platform = &ocispec.Platform{OS: "linux", Architecture: "arm64"}
	both := r.PushIndex("both", one, other)
	alone := r.PushIndex("alone", several)
	at := func(d ocispec.Descriptor) string { return "@" + d.Digest.String() }
	for _, c := range []struct {
		reference, arch, want, url string
	}{
		{":12", "", "a disk", ":12" + at(one)},
		{at(one), "", "a disk", at(one)},
		{":moved" + at(one), "arm64", "a disk", ":moved" + at(one)},
		{":several?layer=disk.raw", "", "a disk", ":several" + at(several) + "?layer=disk.raw"},
		{":several?layer=text/plain", "", "notes", ":several" + at(several) + "?layer=text%2Fplain"},
		{":both", "amd64", "a disk", ":both" + at(both)},
		{":both", "arm64", "another disk", ":both" + at(both)},
		{":alone?layer=notes.txt", "arm64", "notes", ":alone" + at(alone) + "?layer=notes.txt"},
	} {
		got, f, err := open(t, clientOf(r), r.URL(c.reference), c.arch)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v", c.reference, got, err)
			continue
		}
		sum := sha256.Sum256(got)
		if f.URL != r.URL(c.url) || f.Size != int64(len(c.want)) || f.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: %+v", c.reference, f)
		}
		again, err := oci.Parse(f.URL)
		if err != nil || !again.Pinned() {
			t.Errorf("%s: what is kept cannot be read again: %v", f.URL, err)
		}
	}
	for _, c := range []struct{ reference, arch, reason, text string }{
		{":none", "", "IMAGE_UNAVAILABLE", "has no"},
		{":several", "", "IMAGE_UNSUPPORTED", "notes.txt, disk.raw; choose one with ?layer=NAME"},
		{":several?layer=x", "", "IMAGE_UNSUPPORTED", `called "x": it has notes.txt, disk.raw`},
		{":both", "", "IMAGE_UNSUPPORTED", "it has amd64, arm64"},
		{":both", "s390x", "IMAGE_UNSUPPORTED", "0 images"},
	} {
		_, _, err := open(t, clientOf(r), r.URL(c.reference), c.arch)
		wantReason(t, c.reference, err, c.reason, c.text)
	}
}

// TestARegistryThatLies: what does not fit together is refused before a byte of the file counts.
func TestARegistryThatLies(t *testing.T) {
	t.Parallel()
	r := ocitest.Start(t)
	disk := []byte("a disk")
	one := r.Push("12", ocitest.Layer{Title: "disk.raw", MediaType: "a/b", Content: disk})
	other := r.Push("other", ocitest.Layer{Title: "disk.raw", MediaType: "a/b", Content: []byte("other")})
	layer := ocispec.Descriptor{MediaType: "a/b", Digest: digest.FromBytes(disk), Size: int64(len(disk))}
	sized := func(size int64, sum digest.Digest) map[string]any {
		d := layer
		d.Size, d.Digest = size, sum
		return map[string]any{"layers": []ocispec.Descriptor{d}}
	}
	index := r.PushIndex("index", one)
	r.PushIndex("deep", index)
	r.Push("empty")
	r.PushManifest("hollow", ocispec.MediaTypeImageManifest, map[string]any{"layers": []any{ocispec.DescriptorEmptyJSON}})
	r.PushManifest("text", ocispec.MediaTypeImageManifest, "not a manifest")
	r.PushManifest(
		"double",
		ocispec.MediaTypeImageManifest,
		map[string]any{"layers": []any{layer}, "manifests": []any{one}},
	)
	r.PushManifest("sized", ocispec.MediaTypeImageManifest, sized(7, layer.Digest))
	r.PushManifest("nothing", ocispec.MediaTypeImageManifest, sized(0, layer.Digest))
	r.PushManifest("negative", ocispec.MediaTypeImageManifest, sized(-1, layer.Digest))
	r.PushManifest("sha512", ocispec.MediaTypeImageManifest, sized(6, digest.SHA512.FromBytes(disk)))
	r.PushManifest("traversal", ocispec.MediaTypeImageManifest, sized(6, "sha256:../../../secret"))
	r.PushManifest("large", ocispec.MediaTypeImageManifest, strings.Repeat("x", 5<<20))
	for _, c := range []struct{ reference, reason, text string }{
		{":deep", "IMAGE_UNSUPPORTED", "index of an index"}, {":empty", "IMAGE_UNSUPPORTED", "has no file"},
		{":hollow", "IMAGE_UNSUPPORTED", "has no file"}, {":text", "IMAGE_UNSUPPORTED", "no manifest"},
		{":double", "IMAGE_UNSUPPORTED", "no manifest"}, {":sized", "IMAGE_UNAVAILABLE", "sends 6 bytes"},
		{":nothing", "IMAGE_UNSUPPORTED", "without a size"}, {":negative", "IMAGE_UNSUPPORTED", "without a size"},
		{":sha512", "IMAGE_UNSUPPORTED", "digest by sha256"}, {":traversal", "IMAGE_UNSUPPORTED", "digest by sha256"},
		{":large", "IMAGE_UNAVAILABLE", "more than 4194304 bytes"},
	} {
		_, _, err := open(t, clientOf(r), r.URL(c.reference), "amd64")
		wantReason(t, c.reference, err, c.reason, c.text)
	}
	// For one digest it sends the manifest of another, with a header that claims the right one.
	r.Lie(func(w http.ResponseWriter, q *http.Request) bool {
		if strings.HasSuffix(q.URL.Path, one.Digest.String()) {
			w.Header().Set("Docker-Content-Digest", one.Digest.String())
			q.URL.Path = strings.Replace(q.URL.Path, one.Digest.String(), other.Digest.String(), 1)
		}
		return false
	})
	for _, reference := range []string{"@" + one.Digest.String(), ":index"} {
		_, _, err := open(t, clientOf(r), r.URL(reference), "")
		wantReason(t, reference, err, "IMAGE_DIGEST_MISMATCH", other.Digest.String())
	}
}

// TestWhereARegistrySendsTo: to another host only where the configuration allows it, and credentials never.
func TestWhereARegistrySendsTo(t *testing.T) {
	t.Parallel()
	r := ocitest.Start(t)
	disk := []byte("a disk")
	r.Push("12", ocitest.Layer{MediaType: "a/b", Content: disk})
	var asked atomic.Int64
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked.Add(1)
		if q.Header.Get("Authorization") != "" {
			t.Error("credentials came along")
		}
		_, _ = w.Write(disk)
	}))
	defer elsewhere.Close()
	plain := httptest.NewServer(elsewhere.Config.Handler)
	defer plain.Close()
	send := func(to string) {
		r.Lie(func(w http.ResponseWriter, q *http.Request) bool {
			if user, _, ok := q.BasicAuth(); !ok || user != "ops" {
				w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			if strings.Contains(q.URL.Path, "/blobs/") {
				http.Redirect(w, q, to, http.StatusTemporaryRedirect)
				return true
			}
			return false
		})
	}
	c := clientOf(r)
	c.AuthFile = authFile(t, r.Host(), "ops", "hidden")
	for _, to := range []string{elsewhere.URL + "/x?signature=hidden", plain.URL, "http://" + r.Host() + "/v2/x",
		"file:///etc/passwd", r.Server.URL + "/v2/" + ocitest.Repository + "/blobs/loop"} {
		send(to)
		_, _, err := open(t, c, r.URL(":12"), "")
		wantReason(t, to, err, "IMAGE_URL_REFUSED", "")
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("another host was asked %d times", n)
	}
	send(elsewhere.URL)
	c.Hosts = []string{elsewhere.Listener.Addr().String()}
	if got, _, err := open(t, c, r.URL(":12"), ""); err != nil || !bytes.Equal(got, disk) || asked.Load() != 1 {
		t.Errorf("an allowed host: %q, %v", got, err)
	}
	send(plain.URL)
	c.Hosts = []string{plain.Listener.Addr().String()}
	_, _, err := open(t, c, r.URL(":12"), "")
	wantReason(t, "http", err, "IMAGE_URL_REFUSED", "without TLS")
}

// authFile is one as `docker login` writes it.
func authFile(t *testing.T, host, user, password string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "auth.json")
	text := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host,
		base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTokens: the registry wants a bearer token, which another server issues for a password.
func TestTokens(t *testing.T) {
	t.Parallel()
	r := ocitest.Start(t)
	r.Push("12", ocitest.Layer{MediaType: "a/b", Content: []byte("a disk")})
	var asked atomic.Int64
	tokens := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked.Add(1)
		if user, password, _ := q.BasicAuth(); user != "ops" || password != "hidden" ||
			q.URL.Query().Get("scope") != "repository:"+ocitest.Repository+":pull" || q.URL.Query().Get("service") != "r" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"token": "a-token"}`)
	}))
	defer tokens.Close()
	realm := tokens.URL + "/token"
	r.Lie(func(w http.ResponseWriter, q *http.Request) bool {
		if q.Header.Get("Authorization") == "Bearer a-token" {
			return false
		}
		if q.Header.Get("Authorization") != "" {
			t.Error("something else than a token came")
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="r"`, realm))
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	c := clientOf(r)
	c.AuthFile = authFile(t, r.Host(), "ops", "hidden")
	_, _, err := open(t, c, r.URL(":12"), "")
	wantReason(t, "another host", err, "IMAGE_URL_REFUSED", "images.registries.hosts")
	if asked.Load() != 0 {
		t.Error("the password was offered to another host")
	}
	c.Hosts = []string{tokens.Listener.Addr().String()}
	if got, _, err := open(t, c, r.URL(":12"), ""); err != nil || string(got) != "a disk" {
		t.Errorf("%q, %v", got, err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("%d tokens for one image", n)
	}
	for what, file := range map[string]string{
		"nobody": "", "a wrong password": authFile(t, r.Host(), "ops", "guess"),
		"another host's": authFile(t, "other.example.org", "ops", "hidden"),
	} {
		c.AuthFile = file
		_, _, err := open(t, c, r.URL(":12"), "")
		wantReason(t, what, err, "IMAGE_UNAVAILABLE", "images.registries.auth_file")
	}
}

func TestAuthFiles(t *testing.T) {
	t.Parallel()
	r := ocitest.Start(t)
	r.Push("12", ocitest.Layer{MediaType: "a/b", Content: []byte("a disk")})
	r.Lie(func(w http.ResponseWriter, q *http.Request) bool {
		if user, password, _ := q.BasicAuth(); user == "ops" && password == "a:b" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	well := authFile(t, r.Host(), "ops", "a:b")
	open0 := authFile(t, r.Host(), "ops", "a:b")
	if err := os.Chmod(open0, 0o644); err != nil {
		t.Fatal(err)
	}
	bad := authFile(t, r.Host(), "ops", "a:b")
	if err := os.WriteFile(bad, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct{ file, text string }{
		"well": {well, ""}, "by its URL": {authFile(t, "https://"+r.Host(), "ops", "a:b"), ""},
		"none": {"", "wants a user and a password"}, "not there": {"/nonexistent/auth.json", "no such file"},
		"readable": {open0, "make it 0600"}, "bad": {bad, "has not the form"},
	} {
		client := clientOf(r)
		client.AuthFile = c.file
		_, _, err := open(t, client, r.URL(":12"), "")
		if c.text == "" {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		wantReason(t, what, err, "IMAGE_UNAVAILABLE", c.text)
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the file", what)
		}
	}
}
