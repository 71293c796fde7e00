package console_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/console"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
)

// rig is a console before a handler that returns what reached it.
type rig struct {
	t     *testing.T
	url   string
	clock *clock.Fake
	// tokens are those in force.
	tokens map[string]access.Caller
	ready  error
	cookie *http.Cookie
}

func newRig(t *testing.T, change ...func(*console.Config)) *rig {
	t.Helper()
	box, err := secret.New(bytes.Repeat([]byte{7}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, clock: clock.NewFake(time.Unix(1_800_000_000, 0)), tokens: map[string]access.Caller{
		"good": {Name: "ada", Scope: access.ScopeOperate},
	}}
	cfg := console.Config{
		Identify: func(_ context.Context, token string) (access.Caller, error) {
			if who, ok := r.tokens[token]; ok {
				return who, nil
			}
			return access.Caller{}, failure.Unauthenticated(auth.ReasonBearerInvalid, "the token is not known")
		},
		Ready: func() error { return r.ready }, Sealer: box, Clock: r.clock, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := console.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"authorization":"`+r.Header.Get("Authorization")+`"}`+r.URL.Query().Get("more"))
	})))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// reply is what was answered.
type reply struct {
	StatusCode int
	Status     string
	Header     http.Header
	cookies    []*http.Cookie
}

func (r reply) Cookies() []*http.Cookie { return r.cookies }

// do makes a request with the cookie, if there is one; it keeps a new one of the answer.
func (r *rig) do(method, path, body string, headers ...string) (reply, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if r.cookie != nil {
		req.AddCookie(r.cookie)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Status, resp.Header, resp.Cookies()}, string(raw)
}

var (
	ours = []string{console.Header, "1"}
	json = []string{console.Header, "1", "Content-Type", "application/json"}
)

func (r *rig) signOn(body string) reply {
	r.t.Helper()
	resp, _ := r.do("POST", console.SessionPath, body, json...)
	for _, c := range resp.Cookies() {
		r.cookie = c
	}
	return resp
}

// reached is what the API behind the console sees of a request's token.
func (r *rig) reached(headers ...string) string {
	r.t.Helper()
	_, body := r.do("GET", "/api/v1/machines", "", headers...)
	return body
}

const (
	nobody = `{"authorization":""}`
	ada    = `{"authorization":"Bearer good"}`
)

func TestASessionStandsForItsToken(t *testing.T) {
	r := newRig(t)
	if resp := r.signOn(`{"token": "good"}`); resp.StatusCode != 200 {
		t.Fatalf("sign-on: %s", resp.Status)
	}
	c := r.cookie
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || !strings.HasPrefix(c.Name, "__Host-") ||
		c.Path != "/" || c.Domain != "" {
		t.Errorf("the cookie is %+v", c)
	}
	if strings.Contains(c.Value, "good") {
		t.Error("the cookie shows the token")
	}
	if got := r.reached(ours...); got != ada {
		t.Errorf("a request of the page reaches the API as %s", got)
	}
	if got := r.reached(); got != nobody {
		t.Errorf("a request that another site can send reaches the API as %s", got)
	}
	if got := r.reached(console.Header, "1", "Authorization", "Bearer other"); got != `{"authorization":"Bearer other"}` {
		t.Errorf("a request with a token of its own reaches the API as %s", got)
	}
	_, body := r.do("GET", console.SessionPath, "", ours...)
	if !strings.Contains(body, `"name":"ada","scope":"operate"`) {
		t.Errorf("the session is shown as %s", body)
	}
}

func TestASessionEnds(t *testing.T) {
	for name, end := range map[string]func(*rig){
		"signed out": func(r *rig) {
			kept := *r.cookie
			if resp, _ := r.do("DELETE", console.SessionPath, "", ours...); resp.StatusCode != 204 || resp.Cookies()[0].MaxAge >= 0 {
				r.t.Errorf("sign-out: %s, %v", resp.Status, resp.Cookies())
			}
			r.cookie = &kept // a copy of it
		},
		"too old": func(r *rig) { r.clock.Advance(12 * time.Hour) },
		"forged":  func(r *rig) { r.cookie.Value = strings.Repeat("A", len(r.cookie.Value)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.signOn(`{"token": "good"}`)
			end(r)
			if got := r.reached(ours...); got != nobody {
				t.Errorf("it reaches the API as %s", got)
			}
			if resp, _ := r.do("GET", console.SessionPath, "", ours...); resp.StatusCode != 401 {
				t.Errorf("it is shown with %s", resp.Status)
			}
		})
	}
}

func TestASessionEndsWithItsToken(t *testing.T) {
	r := newRig(t)
	r.signOn(`{"token": "good"}`)
	delete(r.tokens, "good")
	if resp, body := r.do("GET", console.SessionPath, "", ours...); resp.StatusCode != 401 {
		t.Errorf("it is shown with %s: %s", resp.Status, body)
	}
}

func TestSignOnIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		body    string
		headers []string
		code    int
	}{
		"unknown token":   {`{"token": "bad"}`, json, 401},
		"unknown code":    {`{"code": "bad"}`, json, 401},
		"by another site": {`{"token": "good"}`, []string{"Content-Type", "application/json"}, 403},
		"as a form":       {`{"token": "good"}`, []string{console.Header, "1", "Content-Type", "text/plain"}, 400},
		"no JSON":         {`token=good`, json, 400},
		"too large":       {`{"token": "` + strings.Repeat("x", 10_000) + `"}`, json, 400},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := newRig(t).do("POST", console.SessionPath, c.body, c.headers...)
			if resp.StatusCode != c.code || len(resp.Cookies()) > 0 {
				t.Errorf("%s %v: %s", resp.Status, resp.Cookies(), body)
			}
		})
	}
}

// TestNobodyIsSentAwayByAStart: a controller that has just started does not know every token yet.
func TestNobodyIsSentAwayByAStart(t *testing.T) {
	r := newRig(t)
	r.signOn(`{"token": "good"}`)
	r.ready = failure.Unavailable("DATABASE_UNAVAILABLE", "the controller is waiting for its database")
	delete(r.tokens, "good")
	if resp, _ := r.do("GET", console.SessionPath, "", ours...); resp.StatusCode != 503 {
		t.Errorf("a session is shown with %s", resp.Status)
	}
}

func TestACodeSignsOnOnce(t *testing.T) {
	r := newRig(t)
	code := func() string {
		t.Helper()
		resp, body := r.do("POST", console.CodesPath, "", "Authorization", "Bearer good")
		if resp.StatusCode != 200 {
			t.Fatalf("%s: %s", resp.Status, body)
		}
		_, rest, _ := strings.Cut(body, `"code":"`)
		c, _, _ := strings.Cut(rest, `"`)
		return c
	}
	once := code()
	if resp := r.signOn(`{"code": "` + once + `"}`); resp.StatusCode != 200 {
		t.Errorf("the first time: %s", resp.Status)
	}
	if got := r.reached(ours...); got != ada {
		t.Errorf("the session reaches the API as %s", got)
	}
	if resp := r.signOn(`{"code": "` + once + `"}`); resp.StatusCode != 401 {
		t.Errorf("the second time: %s", resp.Status)
	}
	late := code()
	r.clock.Advance(time.Minute)
	if resp := r.signOn(`{"code": "` + late + `"}`); resp.StatusCode != 401 {
		t.Errorf("after a minute: %s", resp.Status)
	}
	revoked := code()
	delete(r.tokens, "good")
	if resp := r.signOn(`{"code": "` + revoked + `"}`); resp.StatusCode != 401 {
		t.Errorf("after its token: %s", resp.Status)
	}
	if resp, _ := r.do("POST", console.CodesPath, "", "Authorization", "Bearer bad"); resp.StatusCode != 401 {
		t.Errorf("a code for an unknown token: %s", resp.Status)
	}
	if resp, _ := r.do("POST", console.CodesPath, "", ours...); resp.StatusCode != 401 {
		t.Errorf("a code for a session: %s", resp.Status)
	}
}

func TestPages(t *testing.T) {
	r := newRig(t)
	html := []string{"Accept", "text/html"}
	for _, path := range []string{"/", "/console"} {
		if resp, _ := r.do("GET", path, "", html...); resp.StatusCode != 303 || resp.Header.Get("Location") != console.Path {
			t.Errorf("%s: %s to %q", path, resp.Status, resp.Header.Get("Location"))
		}
	}
	if _, body := r.do("GET", "/", ""); body != nobody {
		t.Errorf("a program that asks for / gets %s", body)
	}
	page, body := r.do("GET", console.Path+"machines/m-1", "", html...)
	policy := page.Header.Get("Content-Security-Policy")
	if page.StatusCode != 200 || !strings.Contains(body, `<div id="app">`) || strings.Contains(policy, "unsafe") ||
		!strings.Contains(policy, "default-src 'none'") || page.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("a page: %s, %v", page.Status, page.Header)
	}
	if strings.Contains(body, "<script>") || strings.Contains(body, "<style") || strings.Contains(body, "style=") {
		t.Error("the page has what its policy forbids")
	}
	again, _ := r.do("GET", console.Path, "", "Accept", "text/html", "If-None-Match", page.Header.Get("ETag"))
	if again.StatusCode != 304 {
		t.Errorf("the same page again: %s", again.Status)
	}
	if resp, _ := r.do("GET", console.Path+"assets/none.js", "", html...); resp.StatusCode != 404 {
		t.Errorf("a file that is not there: %s", resp.Status)
	}
	if resp, _ := r.do("POST", console.Path, "x"); resp.StatusCode != 405 {
		t.Errorf("a POST: %s", resp.Status)
	}
}

// mostBytes is what a browser may have to fetch before the console shows something, compressed.
const mostBytes = 150 << 10

func TestTheFirstLoadIsSmall(t *testing.T) {
	r := newRig(t)
	total := 0
	fetch := func(path string) string {
		resp, body := r.do("GET", path, "", "Accept-Encoding", "gzip", "Accept", "text/html")
		total += len(body)
		if resp.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s is not compressed", path)
		}
		z, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(path, "/assets/") && !strings.Contains(resp.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s is asked for again and again: %s", path, resp.Header.Get("Cache-Control"))
		}
		return string(plain)
	}
	files := 0
	for _, part := range strings.Split(fetch(console.Path), `"`) {
		if strings.HasPrefix(part, "/console/assets/") {
			fetch(part)
			files++
		}
	}
	if files < 3 || total > mostBytes {
		t.Errorf("the page and its %d files have %d bytes, of at most %d", files, total, mostBytes)
	}
	t.Logf("%d bytes in %d files", total, files+1)
}

func TestAnswersAreCompressedWhereThatSavesSomething(t *testing.T) {
	r := newRig(t)
	r.signOn(`{"token": "good"}`)
	more := strings.Repeat("m", 4000)
	large := "/api/v1/machines?more=" + more
	for range 3 { // each compressor is used again
		resp, body := r.do("GET", large, "", console.Header, "1", "Accept-Encoding", "gzip")
		if resp.Header.Get("Content-Encoding") != "gzip" || len(body) > 500 {
			t.Fatalf("an answer to the page is not compressed: %d bytes", len(body))
		}
		z, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil || string(plain) != ada+more {
			t.Fatalf("%d bytes, %v", len(plain), err)
		}
	}
	resp, _ := r.do("GET", large, "", "Accept-Encoding", "gzip", "Authorization", "Bearer good")
	if resp.Header.Get("Content-Encoding") != "gzip" {
		t.Error("the answer to a token is not compressed")
	}
	for path, encoding := range map[string]string{"/api/v1/machines": "gzip", large: "identity"} {
		resp, body := r.do("GET", path, "", "Accept-Encoding", encoding, "Authorization", "Bearer good")
		if resp.Header.Get("Content-Encoding") != "" || !strings.HasPrefix(body, ada) {
			t.Errorf("%.30s for a client that takes %s: %v", path, encoding, resp.Header)
		}
	}
}
