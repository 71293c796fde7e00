package ca

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/erasure"
)

func statement() erasure.Statement {
	return erasure.Statement{
		Version: erasure.Version, IssuedAt: start.Truncate(time.Second), IssuedBy: "c-1",
		Machine: erasure.Machine{ID: "m-1", Serial: "S1"}, Work: erasure.Work{ID: "op-1"},
		Disks: []erasure.Disk{{ID: "nvme-A", Method: "nvme-sanitize (block erase)", Verification: "1 GiB read, all zero"}},
	}
}

func certificate(t *testing.T, a *Authority, s erasure.Statement) []byte {
	t.Helper()
	key, chain, err := a.DocumentSigner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return signedBy(t, s, key, chain)
}

func signedBy(t *testing.T, s erasure.Statement, key crypto.Signer, chain []*x509.Certificate) []byte {
	t.Helper()
	document, err := erasure.Sign(s, key, chain)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// Nothing but the root is needed, and no clock: the certificate outlives the key that has signed it.
func TestAnErasureCertificateIsProvenByTheRootAlone(t *testing.T) {
	a, _ := newCA(t)
	document := certificate(t, a, statement())
	hash := a.RootHash()
	for name, trust := range map[string]erasure.Trust{"root": {Roots: a.Roots()}, "hash": {RootHash: &hash}} {
		got, err := erasure.Verify(document, trust)
		if err != nil || got.Disks[0] != statement().Disks[0] || got.Machine != statement().Machine {
			t.Errorf("by its %s: %+v, %v", name, got, err)
		}
	}
}

func TestAFalseErasureCertificateIsRefused(t *testing.T) {
	a, _ := newCA(t)
	other, err := New(Config{Dir: filepath.Join(t.TempDir(), "ca"), Clock: clock.NewFake(start)})
	if err != nil {
		t.Fatal(err)
	}
	good := certificate(t, a, statement())
	server, err := a.ServerCert(t.Context(), nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	late, old, empty := statement(), statement(), statement()
	late.IssuedAt = start.Add(time.Hour)
	old.Version = 2
	empty.Disks = nil
	ours := erasure.Trust{Roots: a.Roots()}
	byServer := signedBy(t, statement(), server.PrivateKey.(crypto.Signer), certsOf(t, server.Certificate))
	wrongHash := sha256.Sum256([]byte("another root"))
	for name, c := range map[string]struct {
		document []byte
		trust    erasure.Trust
		want     error
	}{
		"by another installation":          {certificate(t, other, statement()), ours, erasure.ErrUntrusted},
		"root with another hash":           {good, erasure.Trust{RootHash: &wrongHash}, erasure.ErrUntrusted},
		"nothing trusted":                  {good, erasure.Trust{}, erasure.ErrUntrusted},
		"by the key of a server":           {byServer, ours, erasure.ErrUntrusted},
		"another machine":                  {withPayload(t, good, `"m-1"`, `"m-2"`), ours, erasure.ErrAltered},
		"when its key was not in use":      {certificate(t, a, late), ours, erasure.ErrUntrusted},
		"of a form that nobody knows":      {certificate(t, a, old), ours, erasure.ErrMalformed},
		"without a disk":                   {certificate(t, a, empty), ours, erasure.ErrMalformed},
		"without a signature":              {withHeader(t, good, "alg", "none"), ours, erasure.ErrMalformed},
		"another type":                     {withHeader(t, good, "typ", "JWT"), ours, erasure.ErrMalformed},
		"no JSON":                          {[]byte("eyJhbGciOiJFUzI1NiJ9.e30.AA"), ours, erasure.ErrMalformed},
		"nothing":                          {nil, ours, erasure.ErrMalformed},
		"more than anybody needs to parse": {bytes.Repeat([]byte(" "), 2<<20), ours, erasure.ErrMalformed},
	} {
		if _, err := erasure.Verify(c.document, c.trust); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func certsOf(t *testing.T, ders [][]byte) (out []*x509.Certificate) {
	t.Helper()
	for _, der := range ders {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

// change rewrites one part of a certificate, as a forger would.
func change(t *testing.T, document []byte, part string, fn func([]byte) []byte) []byte {
	t.Helper()
	var parts map[string]string
	if err := json.Unmarshal(document, &parts); err != nil {
		t.Fatal(err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[part])
	if err != nil {
		t.Fatal(err)
	}
	parts[part] = base64.RawURLEncoding.EncodeToString(fn(raw))
	out, err := json.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func withPayload(t *testing.T, document []byte, from, to string) []byte {
	t.Helper()
	return change(t, document, "payload", func(b []byte) []byte { return bytes.Replace(b, []byte(from), []byte(to), 1) })
}

func withHeader(t *testing.T, document []byte, key, value string) []byte {
	t.Helper()
	return change(t, document, "protected", func(b []byte) []byte {
		var header map[string]any
		if err := json.Unmarshal(b, &header); err != nil {
			t.Fatal(err)
		}
		header[key] = value
		out, err := json.Marshal(header)
		if err != nil {
			t.Fatal(err)
		}
		return out
	})
}
