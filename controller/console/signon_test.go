//nolint:bodyclose // recorded answers have nothing to close
package console_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/console"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/signon"
	"github.com/ingot-metal/ingot/internal/failure"
)

// provider answers as a provider would; lab/signon has a real one.
type provider struct {
	r       *rig
	mu      sync.Mutex
	began   signon.Attempt
	renewed int
	away    bool
	// renew is what the tokens are renewed with.
	renew string
}

func (p *provider) tokens(id string) signon.Tokens {
	return signon.Tokens{ID: id, Renew: p.renew, Person: access.Person{Issuer: "i", Subject: "7", Name: "ada",
		ExpiresAt: p.r.clock.Now().Add(5 * time.Minute)}}
}

func (p *provider) Begin(_ context.Context, a signon.Attempt) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return "", failure.Unavailable(signon.ReasonUnavailable, "away")
	}
	p.began = a
	return "https://provider.test/auth?state=" + url.QueryEscape(a.State), nil
}

func (p *provider) Finish(_ context.Context, a signon.Attempt, code string) (signon.Tokens, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a != p.began || code != "good" {
		return signon.Tokens{}, failure.Unauthenticated(auth.ReasonBearerInvalid, "no")
	}
	return p.tokens("good"), nil
}

func (p *provider) Renew(_ context.Context, renew, identity string) (signon.Tokens, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away || renew != p.renew || identity != "person i 7" {
		return signon.Tokens{}, failure.Unavailable(signon.ReasonUnavailable, "away")
	}
	p.renewed++
	return p.tokens("renewed"), nil
}

type audit struct {
	mu   sync.Mutex
	rows []string
}

func (a *audit) add(parts ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rows = append(a.rows, strings.Join(parts, " "))
}

// withProvider is a rig whose people sign on; redirects are not followed.
func withProvider(t *testing.T) (*rig, *provider, *audit) {
	t.Helper()
	p, a := &provider{renew: "next"}, &audit{}
	r := newRig(t, func(c *console.Config) {
		c.Provider, c.Names = p, []string{"127.0.0.1"}
		c.SignedOn = func(who access.Caller, address string) { a.add("on", who.Name, address) }
		c.RefusedSignOn = func(name, address, reason string) { a.add("refused", name, address, reason) }
	})
	p.r = r
	r.tokens["renewed"] = access.Caller{Name: "ada", Scope: access.ScopeOperate}
	return r, p, a
}

// get asks without following redirects, with these cookies.
func (r *rig) get(path string, cookies ...*http.Cookie) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+path, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set(console.Header, "1")
	for _, c := range cookies {
		req.AddCookie(c)
	}
	stay := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := stay.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

func cookieOf(resp *http.Response, name string) *http.Cookie {
	for _, c := range resp.Cookies() {
		if c.Name == name && c.Value != "" {
			return c
		}
	}
	return nil
}

const (
	attemptName = "__Host-ingot-sign-on"
	sessionName = "__Host-ingot"
)

func TestSignOnWithAProvider(t *testing.T) {
	r, p, a := withProvider(t)
	begun := r.get(console.BeginPath)
	kept := cookieOf(begun, attemptName)
	if begun.StatusCode != http.StatusSeeOther || kept == nil || !kept.HttpOnly || !kept.Secure ||
		kept.SameSite != http.SameSiteLaxMode || p.began.Verifier == "" || p.began.Nonce == p.began.State ||
		!strings.HasSuffix(p.began.Redirect, console.CallbackPath) {
		t.Fatalf("begun: %v %+v", begun, p.began)
	}
	good := console.CallbackPath + "?code=good&state=" + url.QueryEscape(p.began.State)
	for name, at := range map[string]struct {
		path    string
		cookies []*http.Cookie
	}{
		"another browser": {good, nil},
		"a made-up state": {console.CallbackPath + "?code=good&state=x", []*http.Cookie{kept}},
		"no state":        {console.CallbackPath + "?code=good", []*http.Cookie{kept}},
		"a made-up code": {
			console.CallbackPath + "?code=bad&state=" + url.QueryEscape(p.began.State), []*http.Cookie{kept},
		},
		"a refused person": {
			console.CallbackPath + "?error=access_denied&state=" + url.QueryEscape(p.began.State), []*http.Cookie{kept},
		},
		"a made-up cookie": {good, []*http.Cookie{{Name: attemptName, Value: kept.Value + "x"}}},
	} {
		resp := r.get(at.path, at.cookies...)
		if cookieOf(resp, sessionName) != nil || resp.Header.Get("Location") != "/console/#refused=BEARER_INVALID" {
			t.Errorf("%s: %v", name, resp.Header)
		}
	}
	if len(a.rows) != 6 || a.rows[0] != "refused  127.0.0.1 BEARER_INVALID" {
		t.Errorf("audited: %q", a.rows)
	}
	done := r.get(good, kept)
	s := cookieOf(done, sessionName)
	if done.Header.Get("Location") != console.Path || s == nil || s.SameSite != http.SameSiteStrictMode || !s.HttpOnly {
		t.Fatalf("done: %v", done.Header)
	}
	if last := a.rows[len(a.rows)-1]; last != "on ada 127.0.0.1" {
		t.Errorf("audited: %q", last)
	}
	r.clock.Advance(11 * time.Minute)
	if resp := r.get(good, kept); cookieOf(resp, sessionName) != nil {
		t.Error("an old attempt signs on")
	}
	p.away = true
	if resp := r.get(console.BeginPath); resp.Header.Get("Location") != "/console/#refused=SIGN_ON_UNAVAILABLE" {
		t.Errorf("away: %v", resp.Header)
	}
}

// signedOn returns the cookie of a new session.
func signedOn(r *rig, p *provider) *http.Cookie {
	r.t.Helper()
	kept := cookieOf(r.get(console.BeginPath), attemptName)
	s := cookieOf(r.get(console.CallbackPath+"?code=good&state="+url.QueryEscape(p.began.State), kept), sessionName)
	if s == nil {
		r.t.Fatal("no session")
	}
	return s
}

func TestASessionIsRenewedOnce(t *testing.T) {
	r, p, _ := withProvider(t)
	s := signedOn(r, p)
	if resp := r.get("/api/v1/machines", s); cookieOf(resp, sessionName) != nil || p.renewed != 0 {
		t.Error("renewed before its time")
	}
	r.clock.Advance(5*time.Minute - 20*time.Second)
	delete(r.tokens, "good")
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			resp := r.get(console.SessionPath, s)
			if resp.StatusCode != http.StatusOK || cookieOf(resp, sessionName) == nil {
				t.Errorf("%s", resp.Status)
			}
		})
	}
	wg.Wait()
	if p.renewed != 1 {
		t.Errorf("renewed %d times", p.renewed)
	}
}

func TestASessionOutlivesAProviderThatIsAway(t *testing.T) {
	r, p, _ := withProvider(t)
	s := signedOn(r, p)
	p.away = true
	r.clock.Advance(5*time.Minute - 20*time.Second)
	if resp := r.get(console.SessionPath, s); resp.StatusCode != http.StatusOK {
		t.Errorf("while the token is good: %s", resp.Status)
	}
	p.away = false
	if resp := r.get(console.SessionPath, s); resp.StatusCode != http.StatusOK || p.renewed != 1 {
		t.Errorf("after that: %s, renewed %d times", resp.Status, p.renewed)
	}
}

func TestALargeSessionIsKeptWithoutItsRenewal(t *testing.T) {
	r, p, _ := withProvider(t)
	p.renew = strings.Repeat("x", 4000)
	s := signedOn(r, p)
	if len(s.Value) > 3900 {
		t.Errorf("%d bytes", len(s.Value))
	}
	r.clock.Advance(5 * time.Minute)
	if r.get(console.SessionPath, s); p.renewed != 0 {
		t.Error("renewed with what was not kept")
	}
}
