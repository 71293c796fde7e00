//go:build registry

package registry

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// tokens is a server of tokens (distribution, "Token Authentication Specification"): everybody may pull, and our user
// may push.
type tokens struct {
	*httptest.Server
	asked atomic.Int64
	// onlyUser has it refuse tokens to others.
	onlyUser atomic.Bool
}

func startTokens(t *testing.T) *tokens {
	t.Helper()
	s := &tokens{}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	return s
}

// auth is the section of that name for a registry that believes this server.
func (s *tokens) auth(t *testing.T) string {
	t.Helper()
	_, cert, _ := certificate(t)
	return fmt.Sprintf("auth: {token: {realm: %q, service: registry.test, issuer: tokens.test, rootcertbundle: %q}}",
		s.URL+"/token", cert)
}

// ServeHTTP issues a token for the requested scope.
func (s *tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	name, secret, _ := r.BasicAuth()
	known := name == user && secret == password
	if !known && (name != "" || s.onlyUser.Load()) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var access []map[string]any
	for _, scope := range r.URL.Query()["scope"] {
		parts := strings.Split(scope, ":") // repository:NAME:ACTIONS
		actions := []string{"pull"}
		if known {
			actions = strings.Split(parts[len(parts)-1], ",")
		}
		access = append(access, map[string]any{"type": parts[0], "name": parts[1], "actions": actions})
	}
	text, err := s.sign(map[string]any{"iss": "tokens.test", "sub": name, "aud": r.URL.Query().Get("service"), "jti": "1",
		"iat": time.Now().Unix(), "nbf": time.Now().Add(-time.Minute).Unix(), "exp": time.Now().Add(time.Hour).Unix(),
		"access": access})
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintf(w, `{"token": %q, "expires_in": 3600}`, text)
}

func (s *tokens) sign(claims map[string]any) (string, error) {
	pair := s.TLS.Certificates[0]
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: pair.PrivateKey}, (&jose.SignerOptions{}).
		WithType("JWT").WithHeader("x5c", []string{base64.StdEncoding.EncodeToString(pair.Certificate[0])}))
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}

// authFile is one as `docker login` writes it.
func authFile(t *testing.T, host, name, secret string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "auth.json")
	text := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, base64.StdEncoding.EncodeToString([]byte(name+":"+secret)))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// liar is a proxy of a registry that changes its answers.
func liar(t *testing.T, s *server, change func(w http.ResponseWriter, r *http.Request) bool) (address string) {
	t.Helper()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if change(w, r) {
			return
		}
		q, err := http.NewRequestWithContext(r.Context(), r.Method, "https://"+s.address+r.URL.Path, http.NoBody)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		q.Header = r.Header.Clone()
		resp, err := s.trusting().Do(q)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		for key, values := range resp.Header {
			w.Header()[key] = values
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}
