package pdf_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/erasure"
	"github.com/ingot-metal/ingot/internal/erasure/pdf"
)

var start = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func statement(disks int) erasure.Statement {
	s := erasure.Statement{
		Version: erasure.Version, IssuedAt: start, IssuedBy: "c-01k",
		Machine: erasure.Machine{ID: "r42-01", ExternalID: "Gerät №7 Ω", Serial: "J1234", Simulated: true},
		Work: erasure.Work{ID: "op-01k", Type: "DECOMMISSION", RequestID: "leave", CreatedAt: start.Add(-2 * time.Hour),
			EndedAt: start.Add(-time.Hour), Installer: "a-01k", IdentityLevel: "tpm", Trust: "vendor"},
		History: erasure.History{Entries: 214, Head: strings.Repeat("9f2c", 16)},
	}
	for range disks {
		s.Disks = append(s.Disks, erasure.Disk{ID: "ata-VENDOR_MODEL_S1", Method: "overwrite",
			Verification: "read whole, all zero", Seconds: 5400.5, NotUsed: "ATA sanitize: not supported", Hidden: "none",
			Notes: "a note " + strings.Repeat("that is long ", 30)})
	}
	return s
}

// signed makes a document with a chain of its own: a root, and a key for documents.
func signed(t *testing.T, s erasure.Statement) (document []byte, trust erasure.Trust) {
	t.Helper()
	issue := func(c, parent *x509.Certificate, by crypto.Signer) (*x509.Certificate, crypto.Signer) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if by == nil {
			parent, by = c, key
		}
		c.NotBefore, c.NotAfter = start.Add(-time.Minute), start.Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		made, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return made, key
	}
	root, rootKey := issue(&x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Root"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	leaf, key := issue(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "Documents"},
		KeyUsage: x509.KeyUsageDigitalSignature, UnknownExtKeyUsage: []asn1.ObjectIdentifier{erasure.Usage}}, root, rootKey)
	document, err := erasure.Sign(s, key, []*x509.Certificate{leaf, root})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	return document, erasure.Trust{Roots: roots}
}

// TestOtherReadersFindAllOfIt: poppler reads the pages and takes the attachment out, and that is the certificate.
func TestOtherReadersFindAllOfIt(t *testing.T) {
	s := statement(9)
	document, trust := signed(t, s)
	file, err := pdf.Render(document, s)
	if err != nil {
		t.Fatal(err)
	}
	seal, err := erasure.SealOf(document)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "certificate.pdf")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	raw := run(t, "pdftotext", "-layout", path, "-")
	text := strings.Join(strings.Fields(raw), " ")
	for what, want := range map[string]string{
		"machine": "r42-01", "external id": "Gerät №7 Ω", "serial": "J1234",
		"operation": "op-01k (DECOMMISSION)", "request": "leave",
		"ordered": "2026-05-04T10:00:00Z", "ended": "2026-05-04T11:00:00Z", "installer": "a-01k", "identity": "tpm",
		"trust": "vendor", "history": "214 entries", "head": s.History.Head, "issued": "2026-05-04T12:00:00Z",
		"controller": "controller c-01k", "simulated": "SIMULATED", "disk": "ata-VENDOR_MODEL_S1", "method": "overwrite",
		"read back": "read whole, all zero", "time": "5400.5 s", "not used": "ATA sanitize: not supported",
		"disks": "Disks that were erased: 9", "verify": "ingot certificate verify FILE.pdf --ca-file root.pem",
		"pages": "page 1 of " + pages(t, path),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: %q is not on the pages", what, want)
		}
	}
	if !strings.Contains(strings.Join(strings.Fields(raw), ""), seal.Signature) {
		t.Errorf("the signature %s is not on the pages", seal.Signature)
	}
	if n := strings.Count(text, "a note that is long"); n != 9 {
		t.Errorf("%d notes", n)
	}
	dir := t.TempDir()
	run(t, "pdfdetach", "-saveall", "-o", dir, path)
	attached, err := os.ReadFile(filepath.Join(dir, pdf.AttachmentName))
	if err != nil || !bytes.Equal(attached, document) {
		t.Errorf("the attachment is %s (%v)", attached, err)
	}
	got, err := pdf.Document(file)
	if err != nil || !bytes.Equal(got, document) {
		t.Fatalf("read as %s (%v)", got, err)
	}
	if again, err := erasure.Verify(got, trust); err != nil || again.Machine != s.Machine {
		t.Errorf("verified as %+v (%v)", again, err)
	}
	if again, err := pdf.Render(document, s); err != nil || !bytes.Equal(again, file) {
		t.Errorf("the same certificate makes another file (%v)", err)
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatalf("%s (Debian package poppler-utils): %v: %s", name, err, out)
	}
	return string(out)
}

func pages(t *testing.T, path string) string {
	t.Helper()
	for line := range strings.Lines(run(t, "pdfinfo", path)) {
		if n, is := strings.CutPrefix(line, "Pages:"); is {
			return strings.TrimSpace(n)
		}
	}
	t.Fatal("pdfinfo names no number of pages")
	return ""
}

// TestFilesThatCarryNone, or a damaged one.
func TestFilesThatCarryNone(t *testing.T) {
	document, trust := signed(t, statement(1))
	file, err := pdf.Render(document, statement(1))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(file, []byte("/EmbeddedFile"))
	damaged := bytes.Clone(file)
	damaged[bytes.Index(damaged[at:], []byte("stream\n"))+at+60] ^= 1
	for name, b := range map[string][]byte{
		"text": []byte("%PDF-1.4\nno"), "cut": file[:at+40], "damaged": damaged,
		"a picture": []byte("%PDF-1.4\n<< /Type /EmbeddedFile /Length 3 >>\nstream\npng\nendstream"),
	} {
		if got, err := pdf.Document(b); !errors.Is(err, pdf.ErrNone) || !pdf.Is(b) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	plain := append([]byte("%PDF-1.4\n<< /Type /EmbeddedFile /Length 3 >>\nstream\r\n"), document...)
	got, err := pdf.Document(append(plain, "\nendstream"...))
	if err != nil || !bytes.Equal(got, document) {
		t.Errorf("not compressed: %s, %v", got, err)
	}
	if _, err := erasure.Verify(got, trust); err != nil {
		t.Error(err)
	}
	if _, err := pdf.Render([]byte("{}"), statement(1)); !errors.Is(err, erasure.ErrMalformed) {
		t.Errorf("%v", err)
	}
}

// TestPagesDoNotDependOnThoseBefore: pages of another certificate in between change nothing. Verification compares
// pages with those that it makes itself.
func TestPagesDoNotDependOnThoseBefore(t *testing.T) {
	var first, again [][]byte
	for i := range 8 {
		s := statement(1)
		s.Machine.ID = strings.Repeat(string(rune('a'+i)), 3)
		document, _ := signed(t, s)
		for _, pages := range []*[][]byte{&first, &again} {
			made, err := pdf.Render(document, s)
			if err != nil {
				t.Fatal(err)
			}
			*pages = append(*pages, made)
		}
	}
	for i := range first {
		if !bytes.Equal(first[i], again[i]) {
			t.Errorf("the pages of certificate %d are others the second time", i)
		}
	}
}
