// Package signon has people sign on to a real controller with a real provider of OpenID Connect, both processes of
// their own: the example server of github.com/zitadel/oidc, which lab/oidcprovider builds.
package signon

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/process"
)

// Password is everybody's.
const Password = "correct horse"

// Provider is a provider that may be away.
type Provider struct {
	t       testing.TB
	listen  string
	people  string
	process *process.Process

	mu     sync.Mutex
	groups map[string][]string
}

var built struct {
	sync.Once
	path string
	err  error
}

// program builds the provider, once in this process.
func program(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		dir, err := os.MkdirTemp("", "ingot-provider-")
		if err != nil {
			built.err = err
			return
		}
		built.path = filepath.Join(dir, "oidcprovider")
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", built.path, ".")
		cmd.Dir = filepath.Join("..", "oidcprovider") // of a package in lab
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if built.err != nil {
		t.Fatalf("build the provider: %v", built.err)
	}
	return built.path
}

// RemoveProgram removes what was built. TestMain calls it.
func RemoveProgram() {
	if built.path != "" {
		_ = os.RemoveAll(filepath.Dir(built.path)) // temporary files
	}
}

// New chooses an address for a provider, which is not started yet.
func New(t testing.TB) *Provider {
	t.Helper()
	return &Provider{t: t, listen: "localhost:" + testkit.FreePort(t), people: filepath.Join(t.TempDir(), "people.json"),
		groups: map[string][]string{}}
}

// Config are the lines of a controller's configuration.
func (p *Provider) Config() string {
	secret := filepath.Join(p.t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret\n"), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return fmt.Sprintf("sign_on: {issuer: %q, client_id: web, client_secret_file: %q, cli_client_id: native}\n",
		"http://"+p.listen, secret)
}

// Start starts it, for a console at an address, with ID tokens of a life.
func (p *Provider) Start(console string, life time.Duration) {
	p.t.Helper()
	output := &testkit.Buffer{}
	var err error
	p.process, err = process.Start(process.Config{
		Path: program(p.t), Output: output,
		Args: []string{"-listen", p.listen, "-people", p.people, "-life", life.String(), "-redirect",
			"https://" + console + "/console/sign-on/callback"},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		p.Kill()
		if p.t.Failed() {
			p.t.Logf("the provider: %s", output.String())
		}
	})
	testkit.Eventually(p.t, time.Minute, func() bool {
		conn, err := (&net.Dialer{}).DialContext(p.t.Context(), "tcp", p.listen)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	}, "the provider does not listen: %s", output)
}

// Kill ends it at once.
func (p *Provider) Kill() {
	if err := p.process.Kill(); err != nil {
		p.t.Error(err)
	}
}

// Person puts a person into groups, and out of all others.
func (p *Provider) Person(name string, groups ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups[name] = groups
	all := map[string]any{}
	for who, in := range p.groups {
		all[who] = map[string]any{"password": Password, "groups": in}
	}
	raw, err := json.Marshal(all)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(p.people, raw, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// Browser is one person's browser.
type Browser struct {
	t testing.TB
	*http.Client
}

// NewBrowser makes one without cookies, which believes the controller.
func NewBrowser(t testing.TB, roots *tls.Config) *Browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Browser{t, &http.Client{Jar: jar, Timeout: 30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: roots, ForceAttemptHTTP2: true}}}
}

// page is where a browser has come, and what it shows.
type page struct {
	url  *url.URL
	code int
	text string
}

func (b *Browser) do(req *http.Request, err error) page {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := b.Do(req)
	if err != nil {
		b.t.Fatalf("%s: %v", req.URL, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatalf("%s: %v", req.URL, err)
	}
	return page{resp.Request.URL, resp.StatusCode, string(raw)}
}

func (b *Browser) open(ctx context.Context, at string, headers ...string) page {
	b.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	for i := 0; err == nil && i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return b.do(req, err)
}

func (b *Browser) submit(ctx context.Context, at string, form url.Values) page {
	b.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(form.Encode()))
	if err == nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return b.do(req, err)
}

// SignOn signs a person on to the console at an address, and returns the browser's last address.
func (b *Browser) SignOn(ctx context.Context, console, name string) *url.URL {
	b.t.Helper()
	login := b.open(ctx, "https://"+console+"/console/sign-on/begin")
	id := login.url.Query().Get("authRequestID")
	if id == "" {
		return login.url // it was refused
	}
	return b.submit(ctx, "http://"+login.url.Host+"/login/username",
		url.Values{"id": {id}, "username": {name}, "password": {Password}}).url
}

// Session returns the console's answer about the browser's session.
func (b *Browser) Session(ctx context.Context, console string) (code int, text string) {
	b.t.Helper()
	p := b.open(ctx, "https://"+console+"/console/session", "X-Ingot-Console", "1")
	return p.code, p.text
}

// Get reads a path of the API with the browser's session.
func (b *Browser) Get(ctx context.Context, console, path string) (code int, text string) {
	b.t.Helper()
	p := b.open(ctx, "https://"+console+path, "X-Ingot-Console", "1")
	return p.code, p.text
}

// userCode is the provider's form of a code (RFC 8628, section 6.1).
var userCode = regexp.MustCompile(`\b[A-Z]{4}-[A-Z]{4}\b`)

// Allow has a person allow what asked for a code, which stands in the text.
func (p *Provider) Allow(ctx context.Context, b *Browser, text, name string) {
	p.t.Helper()
	code := userCode.FindString(text)
	if code == "" {
		p.t.Fatalf("no code in %q", text)
	}
	at := "http://" + p.listen + "/device/"
	b.submit(ctx, at+"login", url.Values{"user_code": {code}, "username": {name}, "password": {Password}})
	if done := b.submit(ctx, at+"confirm", url.Values{"action": {"allowed"}}); !strings.Contains(done.text, "allowed") {
		p.t.Fatalf("the code %s is not allowed: %d %s", code, done.code, done.text)
	}
}
