package config

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOwnAuthorities: receivers with certificates of an own authority are trusted by its file, beside the system's. A
// file without a certificate is an error and not an empty list.
func TestOwnAuthorities(t *testing.T) {
	if roots, err := (Webhooks{}).Roots(); roots != nil || err != nil {
		t.Errorf("without a file: %v %v", roots, err)
	}
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	cert := server.Certificate()
	file := func(content []byte) Webhooks {
		t.Helper()
		path := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return Webhooks{CAFile: path}
	}
	roots, err := file(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})).Roots()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "example.com"}); err != nil {
		t.Errorf("its certificate is not trusted: %v", err)
	}
	for what, w := range map[string]Webhooks{"holds no certificate": file([]byte("nothing")),
		"read webhooks.ca_file": {CAFile: filepath.Join(t.TempDir(), "none")}} {
		if _, err := w.Roots(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
}
