package attack

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/console"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/lab/harness"
)

// doorAttempts are at what precedes a person's rights.
func doorAttempts() []Attempt {
	return []Attempt{
		{
			Party:   Stranger,
			Attempt: "have a sign-on sent to an own host",
			Rule:    9,
			Run:     ownHost,
			Config:  theProvider().config(),
		},
		{Party: Reader, Attempt: "use a token of the provider that is no ID token", Rule: 9, Run: otherTokens,
			Config: theProvider().config()},
		{
			Party:   Reader,
			Attempt: "use a copied cookie after its sign-out, with a controller that has just started",
			Rule:    9,
			Run:     signedOut,
		},
		{Party: Reader, Attempt: "use up all login codes", Rule: 9, Run: useUpCodes, Config: theProvider().config()},
	}
}

// ownHost begins sign-ons whose request names the stranger's host. Neither the provider nor the answer may lead there,
// and browsers must stay with TLS.
func ownHost(ctx context.Context, r *Rig) (Outcome, error) {
	theProvider().start()
	const host = "attacker.example"
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: r.TLS()},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, header := range []string{"Host", "X-Forwarded-Host", "Forwarded"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet,
			"https://"+r.Addresses().REST+"/console/sign-on/begin", nil)
		if err != nil {
			return Outcome{}, err
		}
		switch header {
		case "Host":
			req.Host = host
		case "Forwarded":
			req.Header.Set(header, "host="+host)
		default:
			req.Header.Set(header, host)
		}
		answer, err := client.Do(req)
		if err != nil {
			return Outcome{}, err
		}
		_ = answer.Body.Close() // its header is what counts
		if strings.Contains(answer.Header.Get("Location"), host) {
			return breached("%s: the browser is sent to %s", header, answer.Header.Get("Location")), nil
		}
		if answer.Header.Get("Strict-Transport-Security") == "" {
			return breached("an answer of %d does not bind the browser to TLS", answer.StatusCode), nil
		}
	}
	return held("three headers, none believed"), nil
}

// otherTokens: Eve has roles. She comes with tokens of the provider for her and this client that are of other types.
func otherTokens(ctx context.Context, r *Rig) (Outcome, error) {
	p := theProvider()
	p.start()
	_, err := baremetalv1.NewAccessServiceClient(r.C.Conn()).CreateRoleBinding(ctx,
		&baremetalv1.CreateRoleBindingRequest{Binding: &baremetalv1.RoleBinding{Role: "viewer", Group: "team"}})
	if err != nil {
		return Outcome{}, err
	}
	reads := func(token string) error {
		_, err := r.C.WithToken(token).Machines().ListMachines(ctx, &baremetalv1.ListMachinesRequest{})
		return err
	}
	for err = reads(p.token()); err != nil; err = reads(p.token()) { // until the controller knows the new role
		if hold(ctx, 50*time.Millisecond); ctx.Err() != nil {
			return Outcome{}, fmt.Errorf("with an ID token: %w", err)
		}
	}
	for _, kind := range []jose.ContentType{"at+jwt", "application/at+jwt", "logout+jwt", "secevent+jwt"} {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.key, KeyID: "k"}},
			(&jose.SignerOptions{}).WithType(kind))
		if err != nil {
			return Outcome{}, err
		}
		signed, err := signer.Sign([]byte(p.claims("console")))
		if err != nil {
			return Outcome{}, err
		}
		token, err := signed.CompactSerialize()
		if err != nil {
			return Outcome{}, err
		}
		if reads(token) == nil {
			return breached("a token of type %s reads machines", kind), nil
		}
	}
	return held("four types of tokens, none taken"), nil
}

// useUpCodes asks for login codes without end, and then another person asks for one.
func useUpCodes(ctx context.Context, r *Rig) (Outcome, error) {
	theProvider().start()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: r.TLS()}}
	ask := func(c *harness.Client) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.Addresses().REST+console.CodesPath,
			http.NoBody)
		if err != nil {
			return 0, err
		}
		req.Header.Set("Authorization", "Bearer "+c.Token())
		answer, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}
	reader := r.Client("reader", access.ScopeRead)
	got := 0
	for range 200 {
		code, err := ask(reader)
		if err != nil {
			return Outcome{}, err
		}
		if code == http.StatusOK {
			got++
		}
	}
	if code, err := ask(r.Client("other", access.ScopeRead)); err != nil || code != http.StatusOK {
		return breached("after %d codes of one reader another is answered %d, %v", got, code, err), nil
	}
	return held("one reader has %d codes, and others theirs", got), nil
}

// signedOut copies the cookie of a session of the console and signs it out. It sends the copy to the same controller,
// and to one that has just started and remembers nothing.
func signedOut(ctx context.Context, r *Rig) (Outcome, error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: r.TLS()}}
	at := r.Addresses().REST
	session := func(method, body string, cookie *http.Cookie) (code int, cookies []*http.Cookie, err error) {
		req, err := http.NewRequestWithContext(ctx, method, "https://"+at+console.SessionPath,
			strings.NewReader(body))
		if err != nil {
			return 0, nil, err
		}
		req.Header.Set(console.Header, "1")
		req.Header.Set("Content-Type", "application/json")
		if cookie != nil {
			req.AddCookie(cookie)
		}
		answer, err := client.Do(req)
		if err != nil {
			return 0, nil, err
		}
		return answer.StatusCode, answer.Cookies(), answer.Body.Close()
	}
	code, cookies, err := session(http.MethodPost,
		fmt.Sprintf(`{"token": %q}`, r.Client("reader", access.ScopeRead).Token()), nil)
	if err != nil || len(cookies) != 1 {
		return Outcome{}, fmt.Errorf("sign on: %d, %w", code, err)
	}
	if code, _, err := session(http.MethodGet, "", cookies[0]); err != nil || code != http.StatusOK {
		return Outcome{}, fmt.Errorf("the session is not open: %d, %w", code, err)
	}
	if code, _, err := session(http.MethodDelete, "", cookies[0]); err != nil || code != http.StatusNoContent {
		return Outcome{}, fmt.Errorf("sign out: %d, %w", code, err)
	}
	other := r.C.Beside(r.T)
	other.Start("")
	defer other.Process.Kill()
	for when, rest := range map[string]string{"by the same": at, "by one that has just started": other.Addresses().REST} {
		at = rest
		for code = http.StatusServiceUnavailable; code == http.StatusServiceUnavailable; {
			if code, _, err = session(http.MethodGet, "", cookies[0]); err != nil {
				return Outcome{}, err
			}
			if hold(ctx, 50*time.Millisecond); ctx.Err() != nil {
				return Outcome{}, ctx.Err()
			}
		}
		if code != http.StatusUnauthorized {
			return breached("the copied cookie is answered %d %s", code, when), nil
		}
	}
	return held("the copy opens nothing, with either controller"), nil
}
