package client

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConsoleAddress(t *testing.T) {
	for _, c := range []struct{ server, listen, want string }{
		{"ctl.example.net:50051", ":50055", "ctl.example.net:50055"},
		{"ctl.example.net:50051", "[::]:50055", "ctl.example.net:50055"},
		{"[2001:db8::1]:50051", "0.0.0.0:443", "[2001:db8::1]:443"},
		{"localhost:50051", "127.0.0.1:50055", "127.0.0.1:50055"},
		{"localhost:50051", "console.example.net:443", "console.example.net:443"},
	} {
		if got, err := ConsoleAddress(c.server, c.listen); err != nil || got != c.want {
			t.Errorf("of %s and %s it is %q, not %q (%v)", c.server, c.listen, got, c.want, err)
		}
	}
	if _, err := ConsoleAddress("localhost:50051", ""); !errors.Is(err, ErrNoConsole) {
		t.Errorf("without a listener: %v", err)
	}
}

func TestConsoleCode(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodPost || r.URL.Path != "/console/login-codes":
			http.NotFound(w, r)
		case r.Header.Get("Authorization") != "Bearer good":
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"message": "the token is not known"}`))
		default:
			_, _ = w.Write([]byte(`{"code": "c0de", "expires_at": "2026-11-25T12:00:00Z"}`))
		}
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "https://")
	roots := filepath.Join(t.TempDir(), "ca.pem")
	pemFile := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(roots, pemFile, 0o600); err != nil {
		t.Fatal(err)
	}
	target := Target{Server: "elsewhere:1", CAFile: roots, Token: "good"}
	code, err := ConsoleCode(t.Context(), target, address)
	if err != nil || code.Code != "c0de" || code.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", code, err)
	}
	target.Token = "bad"
	_, err = ConsoleCode(t.Context(), target, address)
	if err == nil || !strings.Contains(err.Error(), "the token is not known") {
		t.Errorf("with another token: %v", err)
	}
	target.CAFile, target.CAHash = "", strings.Repeat("0", 64)
	if _, err := ConsoleCode(t.Context(), target, address); err == nil {
		t.Error("a token went to a server that nobody vouches for")
	}
}
