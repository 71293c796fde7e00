package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/signon"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Where people sign on with the provider: the way there, and back.
const (
	SignOnPath   = "/console/sign-on"
	BeginPath    = "/console/sign-on/begin"
	CallbackPath = "/console/sign-on/callback"
)

const (
	attemptCookie = "__Host-ingot-sign-on"
	sealedAttempt = "console sign-on"
	// attemptTime is how long a person may take at the provider.
	attemptTime = 10 * time.Minute
	// renewBefore is how long before its end a token is renewed.
	renewBefore = 30 * time.Second
	// mostCookie is what browsers take of one cookie, with its name and attributes (RFC 6265, section 6.1).
	mostCookie = 3900
)

// Provider is who people sign on with.
type Provider interface {
	Begin(ctx context.Context, a signon.Attempt) (string, error)
	Finish(ctx context.Context, a signon.Attempt, code string) (signon.Tokens, error)
	Renew(ctx context.Context, renew, identity string) (signon.Tokens, error)
}

// attempt is what the cookie of a sign-on under way holds, sealed.
type attempt struct {
	signon.Attempt
	Expires time.Time
}

// signOnPages serves the pages below SignOnPath, and reports whether the path is one of them.
func (c *Console) signOnPages(w http.ResponseWriter, r *http.Request) bool {
	var serve func(http.ResponseWriter, *http.Request)
	switch r.URL.Path {
	case SignOnPath:
		serve = func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, struct {
				Provider bool `json:"provider"`
			}{c.cfg.Provider != nil})
		}
	case BeginPath:
		serve = c.beginSignOn
	case CallbackPath:
		serve = c.finishSignOn
	default:
		return false
	}
	c.begin(w, r)
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		refuse(w, http.StatusMethodNotAllowed, "a browser comes here by GET")
		return true
	}
	serve(w, r)
	return true
}

// beginSignOn sends the browser to the provider.
func (c *Console) beginSignOn(w http.ResponseWriter, r *http.Request) {
	if c.cfg.Provider == nil {
		c.refuseSignOn(w, r, "", signon.ReasonOff)
		return
	}
	if err := c.cfg.Ready(); err != nil {
		c.refuseSignOn(w, r, "", failure.From(err).Reason)
		return
	}
	origin, ok := c.origin(r.Host)
	if !ok {
		c.cfg.Logger.Info("console sign-on at a name of no configuration", "host", r.Host, "address", r.RemoteAddr)
		refuse(w, http.StatusMisdirectedRequest,
			"sign on at sign_on.console_url or at one of tls.names, as in the controller's configuration")
		return
	}
	a := attempt{Expires: c.cfg.Clock.Now().Add(attemptTime), Attempt: signon.Attempt{
		State: random(), Nonce: random(), Verifier: random(), Redirect: origin + CallbackPath,
	}}
	to, err := c.cfg.Provider.Begin(r.Context(), a.Attempt)
	if err != nil {
		c.refuseSignOn(w, r, "", failure.From(err).Reason)
		return
	}
	plain, _ := json.Marshal(a) // strings and a time always serialize
	kept := newCookie(          //nolint:gosec // it is Secure and HttpOnly
		base64.RawURLEncoding.EncodeToString(c.cfg.Sealer.Seal(sealedAttempt, plain)),
		int(attemptTime.Seconds()))
	// The provider sends the browser back from another site.
	kept.Name, kept.SameSite = attemptCookie, http.SameSiteLaxMode
	http.SetCookie(w, kept)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// origin returns where the provider sends the browser back. It comes from the configuration: a host that a request
// names counts only where the configuration names it, too.
func (c *Console) origin(host string) (string, bool) {
	if c.cfg.PublicURL != "" {
		return strings.TrimSuffix(c.cfg.PublicURL, "/"), true
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	return "https://" + host, slices.ContainsFunc(c.cfg.Names, func(n string) bool { return strings.EqualFold(n, name) })
}

// random returns 256 bits that cannot be guessed.
func random() string {
	raw := make([]byte, codeBytes)
	rand.Read(raw) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	return base64.RawURLEncoding.EncodeToString(raw)
}

// finishSignOn takes the browser back, and begins a session.
func (c *Console) finishSignOn(w http.ResponseWriter, r *http.Request) {
	a, ok := c.openAttempt(r)
	gone := newCookie("", -1) //nolint:gosec // it is Secure and HttpOnly
	gone.Name, gone.SameSite = attemptCookie, http.SameSiteLaxMode
	http.SetCookie(w, gone)
	query := r.URL.Query()
	same := subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(a.State)) == 1
	if c.cfg.Provider == nil || !ok || !same || query.Get("code") == "" {
		// Another browser's answer, a late one, or a person whom the provider has refused.
		c.refuseSignOn(w, r, "", auth.ReasonBearerInvalid)
		return
	}
	got, err := c.cfg.Provider.Finish(r.Context(), a.Attempt, query.Get("code"))
	if err != nil {
		c.refuseSignOn(w, r, "", failure.From(err).Reason)
		return
	}
	caller, err := c.cfg.Identify(r.Context(), got.ID)
	if err != nil {
		c.refuseSignOn(w, r, got.Person.Name, failure.From(err).Reason)
		return
	}
	s := c.newSession(got.ID)
	s.Who, s.Renew, s.Ends = got.Person.Identity(), got.Renew, got.Person.ExpiresAt
	if !c.keep(w, s) {
		c.refuseSignOn(w, r, caller.Name, auth.ReasonBearerInvalid)
		return
	}
	c.cfg.Known(r.Context())
	c.cfg.SignedOn(caller, hostOf(r))
	c.cfg.Logger.Info("console sign-on", "caller", caller.Name, "address", r.RemoteAddr, "by_provider", true)
	http.Redirect(w, r, Path, http.StatusSeeOther)
}

func (c *Console) openAttempt(r *http.Request) (a attempt, ok bool) {
	got, err := r.Cookie(attemptCookie)
	if err != nil {
		return a, false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(got.Value)
	if err != nil {
		return a, false
	}
	plain, err := c.cfg.Sealer.Open(sealedAttempt, sealed)
	return a, err == nil && json.Unmarshal(plain, &a) == nil && c.cfg.Clock.Now().Before(a.Expires)
}

// refuseSignOn sends the browser back to the page, which has words for the reason.
func (c *Console) refuseSignOn(w http.ResponseWriter, r *http.Request, name, reason string) {
	c.cfg.Refused(r.Context())
	c.cfg.RefusedSignOn(name, hostOf(r), reason)
	c.cfg.Logger.Info("console sign-on refused", "caller", name, "address", r.RemoteAddr, "reason", reason)
	http.Redirect(w, r, Path+"#refused="+url.QueryEscape(reason), http.StatusSeeOther)
}

// renewals are tokens that were renewed a moment ago: requests that were under way have the old cookie.
type renewals struct {
	mu  sync.Mutex
	all map[string]*renewal
}

type renewal struct {
	done chan struct{}
	s    session
	ok   bool
	at   time.Time
}

// renewed keeps a renewal for as long as an old request may come.
const renewedFor = time.Minute

// fresh returns the session with a token that has not ended, where the provider issues one, and has the browser keep
// it.
func (c *Console) fresh(w http.ResponseWriter, r *http.Request, s session) session {
	now := c.cfg.Clock.Now()
	if s.Renew == "" || c.cfg.Provider == nil || now.Before(s.Ends.Add(-renewBefore)) {
		return s
	}
	c.renewals.mu.Lock()
	for id, one := range c.renewals.all {
		if now.Sub(one.at) > renewedFor {
			delete(c.renewals.all, id)
		}
	}
	one := c.renewals.all[s.ID]
	mine := one == nil
	if mine {
		one = &renewal{done: make(chan struct{}), at: now}
		if c.renewals.all == nil {
			c.renewals.all = map[string]*renewal{}
		}
		c.renewals.all[s.ID] = one
	}
	c.renewals.mu.Unlock()
	if mine {
		c.renew(r.Context(), s, one)
	}
	select {
	case <-one.done:
	case <-r.Context().Done():
		return s
	}
	if !one.ok {
		return s
	}
	c.keep(w, one.s)
	return one.s
}

func (c *Console) renew(ctx context.Context, s session, one *renewal) {
	defer close(one.done)
	// The browser may leave; the provider has then given its answer all the same.
	got, err := c.cfg.Provider.Renew(context.WithoutCancel(ctx), s.Renew, s.Who)
	if err != nil {
		c.cfg.Logger.Info("console session not renewed", "error", err.Error())
		c.renewals.mu.Lock()
		delete(c.renewals.all, s.ID) // the next request tries again
		c.renewals.mu.Unlock()
		return
	}
	s.Token, s.Renew, s.Ends = got.ID, got.Renew, got.Person.ExpiresAt
	one.s, one.ok = s, true
}
