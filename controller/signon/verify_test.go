package signon

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/go-jose/go-jose/v4"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// rig is a provider of go-oidc's own tests, and us beside it.
type rig struct {
	*Provider
	key   *ecdsa.PrivateKey
	url   string
	clock *clock.Fake
	away  atomic.Bool
	asked atomic.Int64
	kept  *shelf
}

// shelf is a database in memory.
type shelf struct {
	mu             sync.Mutex
	document, keys []byte
	at             time.Time
}

func (s *shelf) SignOnProvider(context.Context, string) (document, keys []byte, at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.document, s.keys, s.at, nil
}

func (s *shelf) PutSignOnProvider(_ context.Context, _ string, document, keys []byte, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.document, s.keys, s.at = document, keys, at
	return nil
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{key: newKey(t), clock: clock.NewFake(time.Unix(1_800_000_000, 0)), kept: &shelf{}}
	provider := &oidctest.Server{Algorithms: []string{oidc.ES256},
		PublicKeys: []oidctest.PublicKey{{PublicKey: r.key.Public(), KeyID: "one", Algorithm: oidc.ES256}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if strings.HasSuffix(req.URL.Path, "configuration") {
			r.asked.Add(1)
		}
		provider.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	provider.SetIssuer(server.URL)
	r.url = server.URL
	r.Provider = r.another(t)
	return r
}

// another is a controller that has just started.
func (r *rig) another(t *testing.T) *Provider {
	return New(Config{
		Issuer: r.url, ClientID: "console", CLIClientID: "cli", Audiences: []string{"robot"}, GroupsClaim: "groups",
		NameClaim: "preferred_username", TokenLife: time.Hour,
		Client: &http.Client{Timeout: 5 * time.Second}, Store: r.kept,
		Clock: r.clock, Logger: testkit.Logger(t),
	})
}

// claims are those of a token that counts, with changes laid over them.
func (r *rig) claims(changes ...string) string {
	now := r.clock.Now()
	all := map[string]string{
		"iss": fmt.Sprintf("%q", r.url), "aud": `"console"`, "sub": `"7"`, "preferred_username": `"ada"`,
		"groups": `["ops","db"]`, "iat": fmt.Sprint(now.Unix()), "exp": fmt.Sprint(now.Add(10 * time.Minute).Unix()),
		"auth_time": fmt.Sprint(now.Unix()),
	}
	for i := 0; i < len(changes); i += 2 {
		all[changes[i]] = changes[i+1]
	}
	var parts []string
	for k, v := range all {
		if v != "" {
			parts = append(parts, fmt.Sprintf("%q:%s", k, v))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (r *rig) token(changes ...string) string {
	return oidctest.SignIDToken(r.key, "one", oidc.ES256, r.claims(changes...))
}

// typed is a good token whose header names a type.
func (r *rig) typed(kind string) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: r.key, KeyID: "one"}},
		(&jose.SignerOptions{}).WithType(jose.ContentType(kind)))
	if err != nil {
		panic(err)
	}
	signed, err := signer.Sign([]byte(r.claims()))
	if err != nil {
		panic(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return text
}

// TestASignOnTakesTokensOfItsClientAlone: a token of another client of ours counts as a bearer token, and ends no
// sign-on.
func TestASignOnTakesTokensOfItsClientAlone(t *testing.T) {
	r := newRig(t)
	want := expected{nonce: "n", client: "console"}
	for _, c := range []struct {
		token string
		good  bool
	}{
		{r.token("nonce", `"n"`), true}, {r.token("nonce", `"n"`, "aud", `"cli"`), false}, {r.token(), false},
	} {
		if _, err := r.verify(t.Context(), c.token, want, true); (err == nil) != c.good {
			t.Errorf("good %v: %v", c.good, err)
		}
	}
	if _, err := r.Verify(t.Context(), r.typed("JWT"), true); err != nil {
		t.Errorf("of the header JWT: %v", err)
	}
}

func TestATokenThatCounts(t *testing.T) {
	r := newRig(t)
	who, err := r.Verify(t.Context(), r.token(), true)
	if err != nil || who.Name != "ada" || who.Subject != "7" || len(who.Groups) != 2 || !who.Lasting ||
		who.Issuer != r.url {
		t.Fatalf("%+v, %v", who, err)
	}
	for name, c := range map[string]struct {
		changes []string
		good    func(access.Person) bool
	}{
		"for the command line":  {[]string{"aud", `"cli"`}, nil},
		"for a further client":  {[]string{"aud", `["x","robot"]`, "azp", `"robot"`}, nil},
		"one group as a string": {[]string{"groups", `"ops"`}, func(p access.Person) bool { return len(p.Groups) == 1 }},
		"no groups":             {[]string{"groups", ""}, func(p access.Person) bool { return len(p.Groups) == 0 }},
		"no name":               {[]string{"preferred_username", ""}, func(p access.Person) bool { return p.Name == "7" }},
		"a name for logs": {[]string{"preferred_username", `"a\nb\u001b[1m"`},
			func(p access.Person) bool { return p.Name == "a b[1m" }},
		"a long life": {[]string{"exp", fmt.Sprint(r.clock.Now().Add(24 * time.Hour).Unix())},
			func(p access.Person) bool { return p.ExpiresAt.Equal(r.clock.Now().Add(time.Hour)) }},
		"no session": {[]string{"auth_time", ""}, func(p access.Person) bool { return !p.Lasting }},
		"a renewed one": {[]string{"iat", fmt.Sprint(r.clock.Now().Unix() + 1)},
			func(p access.Person) bool { return p.Session == who.Session }},
		"another sign-on": {[]string{"auth_time", fmt.Sprint(r.clock.Now().Unix() - 9)},
			func(p access.Person) bool { return p.Session != who.Session }},
		"a session of the provider": {[]string{"sid", `"s"`},
			func(p access.Person) bool { return p.Lasting && p.Session != who.Session }},
	} {
		p, err := r.Verify(t.Context(), r.token(c.changes...), true)
		if err != nil || c.good != nil && !c.good(p) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func TestTokensThatDoNotCount(t *testing.T) {
	r := newRig(t)
	encode := base64.RawURLEncoding.EncodeToString
	none := encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(r.claims())) + "."
	good := strings.Split(r.token(), ".")
	for name, c := range map[string]struct{ token, reason string }{
		"another client":           {r.token("aud", `"shop"`), "BEARER_INVALID"},
		"another party":            {r.token("azp", `"shop"`), "BEARER_INVALID"},
		"another issuer":           {r.token("iss", `"https://evil.test"`), "BEARER_INVALID"},
		"another key":              {oidctest.SignIDToken(newKey(t), "one", oidc.ES256, r.claims()), "BEARER_INVALID"},
		"an unknown key":           {oidctest.SignIDToken(newKey(t), "two", oidc.ES256, r.claims()), "BEARER_INVALID"},
		"ended":                    {r.token("exp", fmt.Sprint(r.clock.Now().Unix()-1)), "SIGN_ON_EXPIRED"},
		"ended by us":              {r.token("iat", fmt.Sprint(r.clock.Now().Unix()-3601)), "SIGN_ON_EXPIRED"},
		"from the future":          {r.token("iat", fmt.Sprint(r.clock.Now().Unix()+900)), "BEARER_INVALID"},
		"no signature":             {none, "BEARER_INVALID"},
		"changed":                  {good[0] + "." + encode([]byte(r.claims("sub", `"1"`))) + "." + good[2], "BEARER_INVALID"},
		"no token":                 {"a.b.c", "BEARER_INVALID"},
		"too long":                 {r.token("x", `"`+strings.Repeat("x", maxToken)+`"`), "BEARER_INVALID"},
		"of the claim Bearer":      {r.token("typ", `"Bearer"`), "BEARER_INVALID"},
		"of the claim Refresh":     {r.token("typ", `"Refresh"`), "BEARER_INVALID"},
		"with scopes":              {r.token("scope", `"openid fleet"`), "BEARER_INVALID"},
		"of token_use access":      {r.token("token_use", `"access"`), "BEARER_INVALID"},
		"of a logout":              {r.token("events", `{"http://x":{}}`), "BEARER_INVALID"},
		"for others, by no client": {r.token("aud", `["console","shop"]`), "BEARER_INVALID"},
		"of the header logout+jwt": {r.typed("logout+jwt"), "BEARER_INVALID"},
		"of the header at+JWT":     {r.typed("application/at+JWT"), "BEARER_INVALID"},
		"the nonce's other":        {r.token("nonce", `"a"`), "BEARER_INVALID"},
	} {
		verify := r.Verify
		if strings.HasPrefix(name, "the nonce") {
			verify = func(ctx context.Context, token string, wait bool) (access.Person, error) {
				return r.verify(ctx, token, expected{nonce: "b"}, wait)
			}
		}
		if who, err := verify(t.Context(), c.token, true); failure.ReasonOf(err) != c.reason || who.Subject != "" {
			t.Errorf("%s: %+v, %v; want %s", name, who, err, c.reason)
		}
	}
}

// A provider that goes away ends no session, not even on a controller that starts meanwhile; new sign-ons wait.
func TestAProviderThatIsAway(t *testing.T) {
	r := newRig(t)
	token := r.token()
	if _, err := r.Verify(t.Context(), token, false); !errors.Is(err, auth.ErrWouldWait) {
		t.Fatalf("without waiting, at first: %v", err)
	}
	r.away.Store(true)
	_, err := r.Verify(t.Context(), token, true)
	if e := failure.From(err); e.Reason != ReasonUnavailable || !strings.Contains(e.Message, "502") {
		t.Errorf("it says not why: %v", err)
	}
	if _, err := r.Begin(t.Context(), Attempt{}); failure.ReasonOf(err) != ReasonUnavailable {
		t.Errorf("a new sign-on: %v", err)
	}
	r.away.Store(false)
	r.clock.Advance(pause)
	if _, err := r.Verify(t.Context(), token, true); err != nil {
		t.Fatalf("it is back: %v", err)
	}
	if _, err := r.Verify(t.Context(), token, false); err != nil {
		t.Errorf("without waiting: %v", err)
	}
	r.away.Store(true)
	r.clock.Advance(pause)
	if _, err := r.another(t).Verify(t.Context(), token, true); err != nil {
		t.Errorf("on a controller that has just started: %v", err)
	}
	r.clock.Advance(2 * freshFor)
	if _, err := r.Verify(t.Context(), r.token(), true); err != nil {
		t.Errorf("hours later: %v", err)
	}
	r.clock.Advance(goodFor)
	if _, err := r.Verify(t.Context(), r.token(), true); failure.ReasonOf(err) != ReasonUnavailable {
		t.Errorf("a day later: %v", err)
	}
}

// TestUnknownKeysAskSeldom: tokens with unknown key ids make the provider's keys be fetched once per pause at most.
func TestUnknownKeysAskSeldom(t *testing.T) {
	r := newRig(t)
	if _, err := r.Verify(t.Context(), r.token(), true); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(pause)
	var wg sync.WaitGroup
	for i := range 20 {
		forged := oidctest.SignIDToken(r.key, fmt.Sprint("k", i), oidc.ES256, r.claims())
		wg.Go(func() {
			if _, err := r.Verify(t.Context(), forged, true); failure.ReasonOf(err) != auth.ReasonBearerInvalid {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if n := r.asked.Load(); n > 2 {
		t.Errorf("asked %d times", n)
	}
}
