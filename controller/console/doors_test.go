package console_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/console"
	"github.com/ingot-metal/ingot/controller/domain/access"
)

// signOuts is what controllers share: storetest has the real one.
type signOuts struct {
	mu   sync.Mutex
	ids  map[string]bool
	away error
}

func (s *signOuts) SignOut(_ context.Context, id string, _ time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away == nil {
		s.ids[id] = true
	}
	return s.away
}

func (s *signOuts) SignedOut(_ context.Context, id string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[id], s.away
}

// TestASignOutHoldsOnAllControllers: the second console is another controller, or the same after a restart.
func TestASignOutHoldsOnAllControllers(t *testing.T) {
	shared := &signOuts{ids: map[string]bool{}}
	share := func(c *console.Config) { c.SignOuts = shared }
	first, second := newRig(t, share), newRig(t, share)
	first.signOn(`{"token": "good"}`)
	second.cookie = first.cookie
	if got := second.reached(ours...); got != ada {
		t.Fatalf("another controller reads the session as %s", got)
	}
	shared.away = errors.New("away")
	if resp, _ := first.do("DELETE", console.SessionPath, "", ours...); resp.StatusCode != http.StatusServiceUnavailable ||
		len(resp.Cookies()) > 0 {
		t.Errorf("a sign-out that is not stored: %s, %v", resp.Status, resp.Cookies())
	}
	shared.away = nil
	if resp, _ := first.do("DELETE", console.SessionPath, "", ours...); resp.StatusCode != http.StatusNoContent {
		t.Errorf("sign-out: %s", resp.Status)
	}
	second.clock.Advance(3 * time.Second)
	for name, r := range map[string]*rig{"there": first, "elsewhere": second, "after a restart": newRig(t, share)} {
		r.cookie = first.cookie
		if got := r.reached(ours...); got != nobody {
			t.Errorf("%s: the cookie reaches the API as %s", name, got)
		}
	}
}

// TestOneCallerUsesUpNoCodes: a caller that asks for codes without end leaves those of others.
func TestOneCallerUsesUpNoCodes(t *testing.T) {
	r := newRig(t)
	r.tokens["other"] = access.Caller{Name: "bob", Scope: access.ScopeRead}
	made := 0
	for range 1100 {
		resp, _ := r.do("POST", console.CodesPath, "", "Authorization", "Bearer good")
		if resp.StatusCode == http.StatusOK {
			made++
		}
	}
	if resp, body := r.do(
		"POST",
		console.CodesPath,
		"",
		"Authorization",
		"Bearer other",
	); resp.StatusCode != http.StatusOK ||
		made != 10 {
		t.Errorf("after %d codes of one caller another one gets %s: %s", made, resp.Status, body)
	}
	r.clock.Advance(time.Minute)
	if resp, _ := r.do("POST", console.CodesPath, "", "Authorization", "Bearer good"); resp.StatusCode != http.StatusOK {
		t.Errorf("a minute later: %s", resp.Status)
	}
}

// TestTheWayBackComesFromTheConfiguration: a Host header of another name begins no sign-on.
func TestTheWayBackComesFromTheConfiguration(t *testing.T) {
	r, p, _ := withProvider(t)
	begin := func(host string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+console.BeginPath, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if code := begin("evil.test:443"); code != http.StatusMisdirectedRequest || p.began.Redirect != "" {
		t.Errorf("another host: %d, back to %s", code, p.began.Redirect)
	}
	if code := begin("127.0.0.1:8443"); code != http.StatusSeeOther ||
		p.began.Redirect != "https://127.0.0.1:8443/console/sign-on/callback" {
		t.Errorf("a name of the configuration: %d, back to %s", code, p.began.Redirect)
	}
	fixed := newRig(t, func(c *console.Config) { c.Provider, c.PublicURL = p, "https://ingot.example/" })
	r.url, r.clock = fixed.url, fixed.clock
	if begin("evil.test"); p.began.Redirect != "https://ingot.example/console/sign-on/callback" {
		t.Errorf("with a public URL: back to %s", p.began.Redirect)
	}
}

func TestBrowsersStayWithTLS(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{console.Path, console.SessionPath, "/api/v1/machines"} {
		resp, _ := r.do("GET", path, "")
		if got := resp.Header.Get("Strict-Transport-Security"); !strings.HasPrefix(got, "max-age=31536000") {
			t.Errorf("%s: %q", path, got)
		}
	}
}
