package signon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

const (
	// ReasonUnavailable and ReasonOff are reasons of this package, as in baremetal.v1.Reason.
	ReasonUnavailable = "SIGN_ON_UNAVAILABLE"
	ReasonOff         = "SIGN_ON_OFF"

	// askTime bounds one question to the provider, answerBytes its answer.
	askTime     = 5 * time.Second
	answerBytes = 1 << 20
	// pause is how long it is not asked again after it has answered or failed. freshFor is how long its answer is fresh,
	// and goodFor how long it counts without a newer one.
	pause    = 3 * time.Second
	freshFor = time.Hour
	goodFor  = 24 * time.Hour
)

// Store keeps what a provider said.
type Store interface {
	SignOnProvider(ctx context.Context, issuer string) (document, keys []byte, fetched time.Time, err error)
	PutSignOnProvider(ctx context.Context, issuer string, document, keys []byte, at time.Time) error
}

// Config has the provider, and our client's names there. All but CLIClientID, Audiences, Scopes, CAPEM and Store is
// required; the secret is empty for a public client.
type Config struct {
	Issuer, ClientID, ClientSecret string
	// CLIClientID is the public client of the command line.
	CLIClientID string
	// Audiences are further clients whose tokens count.
	Audiences []string
	// Scopes are asked for instead of those that the provider lists of profile, email, groups and offline_access.
	Scopes                 []string
	GroupsClaim, NameClaim string
	// TokenLife bounds how long a token counts since it was issued.
	TokenLife time.Duration
	// Client calls the provider, CAPEM is what it trusts beyond the system's authorities.
	Client *http.Client
	CAPEM  string
	Store  Store
	Clock  clock.Clock
	Logger *slog.Logger
}

// Provider is the provider that people sign on with. It is safe for concurrent use.
type Provider struct {
	cfg Config

	mu   sync.Mutex
	word word
	// asked is when it was last asked, failed why it did not answer; asking is closed when the question under way ends.
	asked  time.Time
	failed error
	asking chan struct{}
}

// word is the provider's own document and keys.
type word struct {
	document document
	keys     jose.JSONWebKeySet
	fetched  time.Time
}

// document is the part of OpenID Connect Discovery 1.0, section 3, that is used.
type document struct {
	Issuer        string   `json:"issuer"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	Device        string   `json:"device_authorization_endpoint"`
	Keys          string   `json:"jwks_uri"`
	Scopes        []string `json:"scopes_supported"`
}

// New returns a Provider, without a call to it.
func New(c Config) *Provider { return &Provider{cfg: c} }

// known returns the provider's document and keys, if they still count.
func (p *Provider) known() (word, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.word, p.word.document.Issuer != "" && p.cfg.Clock.Now().Sub(p.word.fetched) < goodFor
}

// ask returns the provider's word, newer than since where there is one. It waits for the provider where it must, and
// not when the provider has just failed.
func (p *Provider) ask(ctx context.Context, since time.Time) (word, error) {
	if w, ok := p.known(); ok && w.fetched.After(since) && p.cfg.Clock.Now().Sub(w.fetched) < freshFor {
		return w, nil
	}
	if done := p.begin(); done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			return word{}, ctx.Err()
		}
	}
	p.mu.Lock()
	failed := p.failed
	p.mu.Unlock()
	if w, ok := p.known(); ok {
		return w, nil
	}
	return word{}, failure.Unavailable(ReasonUnavailable,
		"the provider of sign-ons, %s, does not answer: %v; sessions go on", p.cfg.Issuer, failed).
		Wrap(failed)
}

// due reports whether the provider may be asked now.
func (p *Provider) due() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asking != nil || p.cfg.Clock.Now().Sub(p.asked) >= pause
}

// begin asks, unless another call does or just has. It returns a channel that is closed at the end.
func (p *Provider) begin() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking != nil {
		return p.asking
	}
	if p.cfg.Clock.Now().Sub(p.asked) < pause {
		return nil
	}
	done := make(chan struct{})
	p.asking = done
	task.Background("ask the provider of sign-ons", func() { p.fetch(done) })
	return done
}

// fetch asks the provider, and the database where the provider does not answer.
func (p *Provider) fetch(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*askTime)
	defer cancel()
	w, raw, err := p.fetchWord(ctx)
	if err == nil && p.cfg.Store != nil {
		if err := p.cfg.Store.PutSignOnProvider(ctx, p.cfg.Issuer, raw[0], raw[1], w.fetched); err != nil {
			p.cfg.Logger.Warn("what the provider of sign-ons says is not kept", "error", err.Error())
		}
	}
	if err != nil {
		p.cfg.Logger.Warn("the provider of sign-ons does not answer", "issuer", p.cfg.Issuer, "error", err.Error())
		if kept, ok := p.kept(); ok {
			w = kept
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.fetched.Before(p.word.fetched) {
		p.word = w
	}
	p.asked, p.failed, p.asking = p.cfg.Clock.Now(), err, nil
	close(done)
}

// kept reads the provider's stored answer to this controller or another one.
func (p *Provider) kept() (w word, ok bool) {
	if p.cfg.Store == nil {
		return w, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	document, keys, fetched, err := p.cfg.Store.SignOnProvider(ctx, p.cfg.Issuer)
	if err != nil || len(document) == 0 {
		return w, false
	}
	w.fetched = fetched
	return w, json.Unmarshal(document, &w.document) == nil && json.Unmarshal(keys, &w.keys) == nil
}

func (p *Provider) fetchWord(ctx context.Context) (w word, raw [2][]byte, err error) {
	at := strings.TrimSuffix(p.cfg.Issuer, "/") + "/.well-known/openid-configuration"
	if raw[0], err = p.get(ctx, at, &w.document); err != nil {
		return w, raw, err
	}
	if w.document.Issuer != p.cfg.Issuer {
		return word{}, raw, fmt.Errorf("%s is the document of another issuer, %q", at, w.document.Issuer)
	}
	if raw[1], err = p.get(ctx, w.document.Keys, &w.keys); err != nil {
		return word{}, raw, err
	}
	w.fetched = p.cfg.Clock.Now()
	return w, raw, nil
}

func (p *Provider) get(ctx context.Context, url string, into any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	resp, err := p.cfg.Client.Do(req)
	if err != nil {
		return nil, err // which names the URL
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, resp.Status)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return nil, fmt.Errorf("the answer of %s is not what it should be: %w", url, err)
	}
	return raw, nil
}

// scopes returns the scopes to request.
func (p *Provider) scopes(d document) []string {
	out := []string{oidc.ScopeOpenID}
	if len(p.cfg.Scopes) > 0 {
		return append(out, p.cfg.Scopes...)
	}
	for _, s := range []string{"profile", "email", "groups", oidc.ScopeOfflineAccess} {
		if slices.Contains(d.Scopes, s) {
			out = append(out, s)
		}
	}
	return out
}

// cliClient is the client that the command line is to the provider.
func (p *Provider) cliClient() string {
	if p.cfg.CLIClientID != "" {
		return p.cfg.CLIClientID
	}
	return p.cfg.ClientID
}

// SignOn returns the settings for a sign-on of the command line.
func (p *Provider) SignOn(ctx context.Context) (*baremetalv1.SignOn, error) {
	w, err := p.ask(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	return &baremetalv1.SignOn{
		Issuer: p.cfg.Issuer, ClientId: p.cliClient(), Scopes: p.scopes(w.document), CaPem: p.cfg.CAPEM,
		DeviceAuthorizationEndpoint: w.document.Device, TokenEndpoint: w.document.Token,
	}, nil
}
