//go:build registry

package registry

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestMain(m *testing.M) { rig.Main(m) }

// controller starts one that may fetch from loopback, with further lines below images.
func controller(t *testing.T, lines string) *harness.ControllerProcess {
	t.Helper()
	c := harness.NewControllerProcessWith(t, "images:\n  allow_networks: [127.0.0.0/8]\n"+lines)
	c.Start("")
	return c
}

// disk is the image of a disk with random content.
func disk(seed byte, size int) []byte {
	content := rig.WholeDisk(size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(content[1<<20 : size-1<<20]) // never fails
	return content
}

const size = 12 << 20

func raw(content []byte) file { return file{"disk.raw", "application/vnd.ingot.disk.raw", content} }

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func zstdOf(t *testing.T, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(b, nil)
}

func gzipOf(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// wantImage fails unless the catalogue has an image of these raw bytes from this URL.
func wantImage(t *testing.T, c *harness.ControllerProcess, name string, content []byte, url string) {
	t.Helper()
	code, out := c.Ingot("image", "show", name, "--output", "json")
	var im struct {
		Digest string `json:"sha256_raw"`
		URL    string `json:"url"`
	}
	if err := json.Unmarshal([]byte(out), &im); code != 0 || err != nil {
		t.Errorf("image show %s: %d, %v\n%s", name, code, err, out)
		return
	}
	if im.Digest != digestOf(content) || im.URL != url {
		t.Errorf("%s: %+v", name, im)
	}
}

// wantStored fails unless the controller keeps so many files and nothing that is half written.
func wantStored(t *testing.T, c *harness.ControllerProcess, files int) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(c.TokensFile()), "data", "images")
	half, err := os.ReadDir(filepath.Join(dir, "incoming"))
	if err != nil || len(half) > 0 {
		t.Errorf("half written: %v (%v)", half, err)
	}
	all, err := os.ReadDir(dir)
	if err != nil || len(all)-1 != files { // incoming is one of them
		t.Errorf("%d files are kept, not %d (%v)", len(all)-1, files, err)
	}
}

func wantRefused(t *testing.T, c *harness.ControllerProcess, reason string, args ...string) {
	t.Helper()
	code, out := c.Ingot(append([]string{"image", "add", "refused"}, args...)...)
	if code == 0 || !strings.Contains(out, reason) {
		t.Errorf("%v: exit code %d, want %s:\n%s", args, code, reason, out)
	}
}

func TestImagesFromARegistry(t *testing.T) {
	s := start(t, options{})
	content := disk(1, size)
	packed := s.push("zst", file{"disk.raw.zst", "application/vnd.ingot.disk.zst", zstdOf(t, content)})
	several := s.push("several", file{"README", "text/plain", []byte("read me")}, raw(content),
		file{"disk.raw.gz", "application/gzip", gzipOf(t, content)})
	c := controller(t, "")
	for name, k := range map[string]struct{ reference, url string }{
		"by-tag":    {":zst", ":zst@" + packed.String()},
		"by-digest": {"@" + packed.String(), "@" + packed.String()},
		"by-title":  {":several?layer=disk.raw.gz", ":several@" + several.String() + "?layer=disk.raw.gz"},
		"by-type":   {":several?layer=application/vnd.ingot.disk.raw", ":several@" + several.String() + "?layer=application%2Fvnd.ingot.disk.raw"},
	} {
		if code, out := c.Ingot("image", "add", name, s.url(k.reference)); code != 0 {
			t.Errorf("%s: %d\n%s", name, code, out)
			continue
		}
		wantImage(t, c, name, content, s.url(k.url))
	}
	wantStored(t, c, 3) // two names of one file
	wantRefused(t, c, "IMAGE_UNSUPPORTED", s.url(":several"))
	wantRefused(t, c, "IMAGE_UNSUPPORTED", s.url(":several?layer=README"))
	wantRefused(t, c, "IMAGE_UNAVAILABLE", s.url(":none"))
	wantRefused(t, c, "IMAGE_UNAVAILABLE", s.url("@sha256:"+strings.Repeat("00", 32)))
	wantRefused(t, c, "IMAGE_DIGEST_MISMATCH", s.url(":zst"), "--sha256", strings.Repeat("00", 32))
	wantStored(t, c, 3)
}

// TestKilledAmidAnIngest: kill -9 of the controller on the way of an image. The next start leaves nothing of it, and
// the same call then makes it whole.
func TestKilledAmidAnIngest(t *testing.T) {
	s := start(t, options{})
	content := disk(1, size)
	sum := s.push("12", raw(content))
	c := controller(t, "")
	for _, point := range []string{"blob.at-write=kill@1", "blob.at-write=kill@20", "image.before-entry=kill",
		"blob.before-place=kill", "blob.after-place=kill"} {
		c.Process.Kill()
		c.Start(point)
		if code, out := c.Ingot("image", "add", "crashed", s.url(":12")); code == 0 {
			t.Fatalf("%s: nothing was killed\n%s", point, out)
		}
		<-c.Process.Gone()
		c.Start("")
		if code, out := c.Ingot("image", "show", "crashed"); code == 0 {
			t.Errorf("%s: there is an entry\n%s", point, out)
		}
		if code, out := c.Ingot("image", "add", "crashed", s.url(":12")); code != 0 {
			t.Fatalf("%s: once more: %d\n%s", point, code, out)
		}
		wantImage(t, c, "crashed", content, s.url(":12@"+sum.String()))
		wantStored(t, c, 1)
		if code, out := c.Ingot("image", "remove", "crashed"); code != 0 {
			t.Errorf("image remove: %d\n%s", code, out)
		}
	}
}

// TestTheRegistryDies: amid a transfer, which is slowed down so that it is one.
func TestTheRegistryDies(t *testing.T) {
	s := start(t, options{})
	content := disk(1, size)
	s.push("12", raw(content))
	c := controller(t, "")
	slow := slowly(t, s.address)
	ended := make(chan string, 1)
	task.Background("ingest", func() {
		_, out := c.Ingot("image", "add", "dies", "oci://"+slow.Addr().String()+"/"+repository+":12")
		ended <- out
	})
	testkit.Eventually(t, time.Minute, func() bool { return slow.bytes.Load() > 1<<20 }, "nothing comes")
	s.kill()
	slow.cut()
	if out := <-ended; !strings.Contains(out, "IMAGE_UNAVAILABLE") {
		t.Errorf("%s", out)
	}
	wantStored(t, c, 0)
	s.again()
	if code, out := c.Ingot("image", "add", "dies", s.url(":12")); code != 0 {
		t.Errorf("%d\n%s", code, out)
	}
}

// wire carries connections to the registry, a little at a time.
type wire struct {
	net.Listener
	bytes atomic.Int64
	ended chan struct{}
}

func (w *wire) cut() { close(w.ended) }

func slowly(t *testing.T, to string) *wire {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w := &wire{Listener: l, ended: make(chan struct{})}
	task.Background("wire", func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			task.Background("there", func() { w.carry(out, in, 0) })
			task.Background("back", func() { w.carry(in, out, 5*time.Millisecond) })
		}
	})
	return w
}

func (w *wire) carry(to, from net.Conn, wait time.Duration) {
	defer to.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if wait > 0 {
			w.bytes.Add(int64(n))
			select {
			case <-w.ended:
				return
			case <-time.After(wait):
			}
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// TestWhatTheRegistryKeepsWrong: bytes on its disk that have changed, and files that are too large.
func TestWhatTheRegistryKeepsWrong(t *testing.T) {
	s := start(t, options{})
	content, large := disk(1, size), disk(2, 2*size)
	s.push("12", raw(content))
	s.push("large", raw(large))
	c := controller(t, fmt.Sprintf("  max_bytes: %d\n", size))
	wantRefused(t, c, "IMAGE_OVER_LIMIT", s.url(":large"))
	bad := bytes.Clone(content)
	bad[5<<20] ^= 1
	if err := os.WriteFile(s.blob(content), bad, 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, c, "IMAGE_DIGEST_MISMATCH", s.url(":12"))
	wantStored(t, c, 0)
}

// TestCredentials: a registry that wants a password, and one that wants a token from another server.
func TestCredentials(t *testing.T) {
	s := start(t, options{auth: htpasswd(t)})
	content := disk(1, size)
	sum := s.push("12", raw(content))
	wantRefused(t, controller(t, ""), "images.registries.auth_file", s.url(":12"))
	with := func(name, secret string) *harness.ControllerProcess {
		return controller(t, fmt.Sprintf("  registries: {auth_file: %q}\n", authFile(t, s.address, name, secret)))
	}
	wantRefused(t, with(user, "guess"), "images.registries.auth_file", s.url(":12"))
	c := with(user, password)
	if code, out := c.Ingot("image", "add", "well", s.url(":12")); code != 0 {
		t.Errorf("%d\n%s", code, out)
	}
	wantImage(t, c, "well", content, s.url(":12@"+sum.String()))
}

func TestTokens(t *testing.T) {
	giver := startTokens(t)
	s := start(t, options{auth: giver.auth(t)})
	content := disk(1, size)
	s.push("12", raw(content))
	asked := giver.asked.Load()
	wantRefused(t, controller(t, ""), "IMAGE_URL_REFUSED", s.url(":12"))
	if giver.asked.Load() != asked {
		t.Error("another host was asked, which nobody allows")
	}
	hosts := fmt.Sprintf("  registries:\n    hosts: [%q]\n", giver.Listener.Addr().String())
	c := controller(t, hosts)
	if code, out := c.Ingot("image", "add", "anybody", s.url(":12")); code != 0 {
		t.Errorf("without a password: %d\n%s", code, out)
	}
	giver.onlyUser.Store(true)
	wantRefused(t, c, "images.registries.auth_file", s.url(":12"))
	c = controller(t, hosts+fmt.Sprintf("    auth_file: %q\n", authFile(t, s.address, user, password)))
	if code, out := c.Ingot("image", "add", "user", s.url(":12")); code != 0 {
		t.Errorf("with a password: %d\n%s", code, out)
	}
}

// TestARegistryThatLies: it sends another manifest for a digest, and sends to an address of the inside.
func TestARegistryThatLies(t *testing.T) {
	s := start(t, options{})
	one, other := s.push("one", raw(disk(1, size))), s.push("other", raw(disk(2, size)))
	var inside atomic.Int64
	secret := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1) }))
	defer secret.Close()
	address := liar(t, s, func(w http.ResponseWriter, r *http.Request) bool {
		r.URL.Path = strings.Replace(r.URL.Path, one.String(), other.String(), 1)
		if strings.Contains(r.URL.Path, "/blobs/") {
			http.Redirect(w, r, secret.URL+"/latest/meta-data", http.StatusTemporaryRedirect)
			return true
		}
		return false
	})
	c := controller(t, "")
	at := "oci://" + address + "/" + repository
	wantRefused(t, c, "IMAGE_DIGEST_MISMATCH", at+"@"+one.String())
	wantRefused(t, c, "IMAGE_URL_REFUSED", at+":other")
	if n := inside.Load(); n != 0 {
		t.Errorf("the inside was asked %d times", n)
	}
	wantStored(t, c, 0)
}

// TestWithoutTLS: only where the configuration allows it, and then only content with a digest.
func TestWithoutTLS(t *testing.T) {
	s := start(t, options{plain: true})
	content := disk(1, size)
	sum := s.push("12", raw(content))
	wantRefused(t, controller(t, ""), "IMAGE_UNAVAILABLE", s.url("@"+sum.String()))
	c := controller(t, fmt.Sprintf("  registries: {plain_http: [%q]}\n", s.address))
	wantRefused(t, c, "IMAGE_URL_REFUSED", s.url(":12"))
	for name, args := range map[string][]string{
		"by-digest": {s.url("@" + sum.String())}, "by-sum": {s.url(":12"), "--sha256", digestOf(content)},
	} {
		if code, out := c.Ingot(append([]string{"image", "add", name}, args...)...); code != 0 {
			t.Errorf("%s: %d\n%s", name, code, out)
		}
	}
	// Addresses of the inside are refused as ever.
	strict := harness.NewControllerProcessWith(t, "images: {allow_networks: []}")
	strict.Start("")
	wantRefused(t, strict, "IMAGE_URL_REFUSED", s.url("@"+sum.String()))
}
