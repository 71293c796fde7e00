//go:build registry

package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/crypto/bcrypt"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/process"
)

// repository is where all images are.
const repository = "images/debian"

// The user who may push, and pull where other users may not.
const (
	user     = "ops"
	password = "a-long-password"
)

// server is a docker-registry (github.com/distribution/distribution) over a directory.
type server struct {
	t       *testing.T
	address string
	dir     string
	// cert vouches for itself; nil without TLS.
	cert *tls.Certificate
	args []string
	run  *process.Process
	out  *testkit.Buffer
}

// options are the differences from a public registry with TLS.
type options struct {
	plain bool
	// auth is the section of that name in the configuration of docker-registry.
	auth string
}

// certificate makes one of 127.0.0.1, as net/http/httptest has it, and has programs trust it that are started from now
// on.
func certificate(t *testing.T) (pair tls.Certificate, certFile, keyFile string) {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	pair = srv.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SSL_CERT_FILE", certFile)
	return pair, certFile, keyFile
}

// start starts a registry on a port of 127.0.0.1. It ends with the test.
func start(t *testing.T, o options) *server {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		t.Fatalf("%v; run make test-registry", err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, address: l.Addr().String(), dir: t.TempDir(), out: &testkit.Buffer{}}
	l.Close()
	config := fmt.Sprintf(
		"version: 0.1\nlog: {level: warn}\nstorage: {filesystem: {rootdirectory: %q}}\n%s\nhttp:\n  addr: %q\n",
		filepath.Join(s.dir, "root"),
		o.auth,
		s.address,
	)
	if !o.plain {
		pair, cert, key := certificate(t)
		s.cert = &pair
		config += fmt.Sprintf("  tls: {certificate: %q, key: %q}\n", cert, key)
	}
	file := filepath.Join(s.dir, "config.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{program, "serve", file}
	s.again()
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("docker-registry:\n%s", s.out.String())
		}
	})
	return s
}

// again starts it once more.
func (s *server) again() {
	s.t.Helper()
	var err error
	if s.run, err = process.Start(process.Config{Path: s.args[0], Args: s.args[1:], Output: s.out}); err != nil {
		s.t.Fatal(err)
	}
	testkit.Eventually(s.t, 30*time.Second, func() bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", s.address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, "docker-registry does not listen")
}

// kill ends it as kill -9 does.
func (s *server) kill() {
	if err := s.run.Kill(); err != nil {
		s.t.Error(err)
	}
}

// htpasswd is the section auth of a registry that only our user may use.
func htpasswd(t *testing.T) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "htpasswd")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%s:%s\n", user, hash), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("auth: {htpasswd: {realm: test, path: %q}}", file)
}

// file is one of an artefact.
type file struct {
	title, kind string
	content     []byte
}

func (s *server) trusting() *http.Client {
	if s.cert == nil {
		return http.DefaultClient
	}
	leaf, err := x509.ParseCertificate(s.cert.Certificate[0])
	if err != nil {
		s.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	}
}

// push pushes an artefact as `oras push` does, and returns the digest of its manifest.
func (s *server) push(tag string, files ...file) digest.Digest {
	s.t.Helper()
	ctx, store := s.t.Context(), memory.New()
	var layers []ocispec.Descriptor
	for _, f := range files {
		d, err := oras.PushBytes(ctx, store, f.kind, f.content)
		if err != nil {
			s.t.Fatal(err)
		}
		d.Annotations = map[string]string{ocispec.AnnotationTitle: f.title}
		layers = append(layers, d)
	}
	m, err := oras.PackManifest(ctx, store, oras.PackManifestVersion1_1, "application/vnd.ingot.disk",
		oras.PackManifestOptions{Layers: layers})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := store.Tag(ctx, m, tag); err != nil {
		s.t.Fatal(err)
	}
	repo, err := remote.NewRepository(s.address + "/" + repository)
	if err != nil {
		s.t.Fatal(err)
	}
	repo.PlainHTTP = s.cert == nil
	repo.Client = &auth.Client{Client: s.trusting(),
		Credential: auth.StaticCredential(s.address, auth.Credential{Username: user, Password: password})}
	if _, err := oras.Copy(ctx, store, tag, repo, tag, oras.DefaultCopyOptions); err != nil {
		s.t.Fatal(err)
	}
	return m.Digest
}

// blob is the file in which the registry keeps a blob.
func (s *server) blob(content []byte) (path string) {
	sum := digest.FromBytes(content).Encoded()
	return filepath.Join(s.dir, "root/docker/registry/v2/blobs/sha256", sum[:2], sum, "data")
}

// url of an artefact; reference is ":TAG" or "@DIGEST".
func (s *server) url(reference string) string {
	return "oci://" + s.address + "/" + repository + reference
}
