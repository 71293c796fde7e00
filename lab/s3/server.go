// Package s3 runs versitygw (github.com/versity/versitygw), a server of the S3 protocol over a directory, for tests.
package s3

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/process"
)

// EnvVar names the program; make test-bucket builds it and sets it.
const EnvVar = "INGOT_TEST_S3"

// The access key of the server's owner.
const (
	AccessKey = "ingot-test"
	SecretKey = "not-a-secret-of-anybody"
)

// Server is one server with one bucket.
type Server struct {
	// URL is its endpoint, also after it was started again.
	URL string
	// Bucket is the bucket's name, Dir the directory with its objects, each a file.
	Bucket, Dir string
	// CAFile vouches for the server; empty without TLS.
	CAFile string

	t       testing.TB
	program string
	args    []string
	run     *process.Process
	output  *testkit.Buffer
}

// Options are the differences from the default server.
type Options struct {
	TLS bool
	// ReadOnly has it refuse whatever changes something.
	ReadOnly bool
	// Users has it keep accounts beside the owner's.
	Users bool
}

// Start starts a server on a port of 127.0.0.1. It ends with the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	program := os.Getenv(EnvVar)
	if program == "" {
		t.Fatalf("%s does not name a versitygw; run make test-bucket", EnvVar)
	}
	dir := t.TempDir()
	s := &Server{t: t, program: program, Bucket: "ingot-images", Dir: filepath.Join(dir, "root", "ingot-images"),
		output: &testkit.Buffer{}}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + testkit.FreePort(t)
	s.URL = "http://" + address
	s.args = []string{"--port", address, "--access", AccessKey, "--secret", SecretKey, "--quiet"}
	if o.TLS {
		s.URL, s.CAFile = "https://"+address, filepath.Join(dir, "ca.pem")
		key := filepath.Join(dir, "key.pem")
		writeCertificate(t, s.CAFile, key)
		s.args = append(s.args, "--cert", s.CAFile, "--key", key)
	}
	if o.ReadOnly {
		s.args = append(s.args, "--readonly")
	}
	if o.Users {
		accounts := filepath.Join(dir, "accounts")
		if err := os.Mkdir(accounts, 0o700); err != nil {
			t.Fatal(err)
		}
		s.args = append(s.args, "--iam-dir", accounts)
	}
	s.args = append(s.args, "posix", filepath.Join(dir, "root"))
	s.Again()
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("versitygw:\n%s", s.output.String())
		}
	})
	return s
}

// Again starts the server once more.
func (s *Server) Again() {
	s.t.Helper()
	var err error
	if s.run, err = process.Start(process.Config{Path: s.program, Args: s.args, Output: s.output}); err != nil {
		s.t.Fatal(err)
	}
	testkit.Eventually(s.t, 30*time.Second, func() bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", s.Host())
		if err == nil {
			_ = conn.Close() // nothing was written
		}
		return err == nil
	}, "versitygw does not listen")
}

// Uploading reports whether parts of an upload have come: the server keeps them apart until the upload is complete.
func (s *Server) Uploading() bool {
	var found bool
	// The function returns no error, so there is none: a file that is gone meanwhile is no part.
	_ = filepath.WalkDir(s.Dir, func(path string, entry fs.DirEntry, err error) error {
		found = found || err == nil && entry.Type().IsRegular() && strings.Contains(path, "/.sgwtmp/multipart/")
		return nil
	})
	return found
}

// Kill ends it as kill -9 does.
func (s *Server) Kill() { s.check(s.run.Kill()) }

// Stand has it stand still until Continue.
func (s *Server) Stand() { s.check(s.run.Signal(syscall.SIGSTOP)) }

// Continue ends Stand.
func (s *Server) Continue() { s.check(s.run.Signal(syscall.SIGCONT)) }

func (s *Server) check(err error) {
	if err != nil {
		s.t.Error(err)
	}
}

// Host is the host and port of the endpoint.
func (s *Server) Host() string { return s.URL[len(s.scheme()):] }

func (s *Server) scheme() string {
	if s.CAFile != "" {
		return "https://"
	}
	return "http://"
}

// Credentials writes a file with the access key.
func (s *Server) Credentials() (path string) {
	s.t.Helper()
	return WriteCredentials(s.t, AccessKey, SecretKey)
}

// AddUser makes an account without rights, and returns a file with its access key. It takes Options.Users.
func (s *Server) AddUser(access, secret string) (path string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.program, "admin", "--access", AccessKey, "--secret", SecretKey,
		"--endpoint-url", s.URL, "create-user", "--access", access, "--secret", secret, "--role", "user").
		CombinedOutput()
	if err != nil {
		s.t.Fatalf("create user: %v\n%s", err, out)
	}
	return WriteCredentials(s.t, access, secret)
}

// WriteCredentials writes a file with an access key.
func WriteCredentials(t testing.TB, access, secret string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "credentials")
	text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", access, secret)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Objects lists the names of the bucket's objects by the server's directory, at any depth.
func (s *Server) Objects() (out []string) {
	s.t.Helper()
	err := filepath.WalkDir(s.Dir, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".sgwtmp": // where it keeps uploads in progress
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		rel, err := filepath.Rel(s.Dir, path)
		out = append(out, rel)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// writeCertificate makes a certificate of 127.0.0.1 that vouches for itself.
func writeCertificate(t testing.TB, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "s3"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: raw},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		t.Fatal(err)
	}
}
