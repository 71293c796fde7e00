package console

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	// Path is where the pages are.
	Path = "/console/"
	// SessionPath is where a session begins, is shown and ends.
	SessionPath = "/console/session"
	// CodesPath is where a bearer token gets a code for signing on once.
	CodesPath = "/console/login-codes"
	// Header must come with every request that a cookie is to count for. Pages of other sites cannot send it.
	Header = "X-Ingot-Console"
)

// Sealer seals texts under a name, and opens them again.
type Sealer interface {
	Seal(name string, plain []byte) []byte
	Open(name string, sealed []byte) ([]byte, error)
}

// SignOuts keeps the sessions that people have signed out of.
type SignOuts interface {
	SignOut(ctx context.Context, sessionID string, expires time.Time) error
	SignedOut(ctx context.Context, sessionID string) (bool, error)
}

// Config is what the console works with. Required are Identify, Ready, Sealer, Clock and Logger.
type Config struct {
	// Identify returns the holder of a bearer token, if it may read.
	Identify func(ctx context.Context, secret string) (access.Caller, error)
	// Provider is who people sign on with; nil where they don't.
	Provider Provider
	// SignedOn and RefusedSignOn are called for sign-ons, for the audit log.
	SignedOn      func(who access.Caller, address string)
	RefusedSignOn func(name, address, reason string)
	// Ready refuses while it cannot be said who holds a token.
	Ready  func() error
	Sealer Sealer
	// SignOuts keeps which sessions have ended, for all controllers and after a restart; nil keeps them in memory alone.
	SignOuts SignOuts
	// PublicURL is where browsers reach the console, such as https://ingot.example:8443. Where it is empty, people sign on
	// at one of Names; the provider sends them back there.
	PublicURL string
	Names     []string
	Clock     clock.Clock
	Logger    *slog.Logger
	// Requested, Known and Refused are called for a request, for one of a known caller, and for a refused sign-on.
	Requested, Known, Refused func(ctx context.Context)
}

// Console serves the pages and the sessions.
type Console struct {
	cfg      Config
	files    map[string]file
	codes    codes
	ended    ended
	renewals renewals
}

// New makes it. An error is a bug: pages that were built badly.
func New(c Config) (*Console, error) {
	nothing := func(context.Context) {}
	for _, f := range []*func(context.Context){&c.Requested, &c.Known, &c.Refused} {
		if *f == nil {
			*f = nothing
		}
	}
	if c.SignedOn == nil {
		c.SignedOn = func(access.Caller, string) {}
	}
	if c.RefusedSignOn == nil {
		c.RefusedSignOn = func(string, string, string) {}
	}
	files, err := readFiles()
	return &Console{cfg: c, files: files}, err
}

// Handler serves the console, and hands every other request to next. A request with a session goes on as one with its
// bearer token.
func (c *Console) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", transportSecurity)
		switch {
		case c.signOnPages(w, r):
		case r.URL.Path == "/" && wantsPage(r), r.URL.Path == strings.TrimSuffix(Path, "/"):
			c.begin(w, r)
			http.Redirect(w, r, Path, http.StatusSeeOther)
		case r.URL.Path == SessionPath:
			c.begin(w, r)
			c.session(w, r)
		case r.URL.Path == CodesPath:
			c.begin(w, r)
			c.loginCode(w, r)
		case strings.HasPrefix(r.URL.Path, Path):
			c.begin(w, r)
			c.file(w, r)
		default:
			answer, done := c.enter(w, r)
			defer done()
			next.ServeHTTP(answer, r)
		}
	})
}

// enter turns a session into the bearer token that it stands for, and compresses what the page, or the holder of a
// token, is answered.
func (c *Console) enter(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func()) {
	if len(r.Header.Values("Authorization")) > 0 {
		return compressed(w, r)
	}
	if r.Header.Get(Header) == "" {
		return w, func() {}
	}
	if s, ok := c.current(r); ok {
		r.Header.Set("Authorization", "Bearer "+c.fresh(w, r, s).Token)
	}
	return compressed(w, r)
}

// patience is how long a client may take to read an answer of the console.
const patience = 30 * time.Second

// begin sets what every answer of the console has.
func (c *Console) begin(w http.ResponseWriter, r *http.Request) {
	c.cfg.Requested(r.Context())
	// Where a deadline cannot be set, as in tests without a connection, no client can be slow.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
	h := w.Header()
	for name, value := range headers {
		h.Set(name, value)
	}
}

// headers let a page load and call what comes from here, and nothing else; no other site can frame it.
var headers = map[string]string{
	"Cache-Control": "no-store",
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types svelte-trusted-html",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
}

// transportSecurity has browsers come by TLS alone for a year (RFC 6797). Other hosts of the domain are not concerned.
const transportSecurity = "max-age=31536000"

func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }
