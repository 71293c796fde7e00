package client

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	// renewBefore is how long before its end a token is renewed.
	renewBefore = 30 * time.Second
	// providerTime bounds one answer of the provider.
	providerTime = 15 * time.Second
)

// Login is a sign-on that a person keeps, for one server.
type Login struct {
	Server string `json:"server"`
	// What renews the token.
	Issuer        string   `json:"issuer"`
	ClientID      string   `json:"client_id"`
	Scopes        []string `json:"scopes"`
	TokenEndpoint string   `json:"token_endpoint"`
	CAPEM         string   `json:"ca_pem,omitempty"`
	RefreshToken  string   `json:"refresh_token,omitempty"`
	// IDToken is the bearer token.
	IDToken   string    `json:"id_token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// ErrLogin is returned when a person has to sign on again.
var ErrLogin = errors.New("the sign-on has ended: ingot login")

// LoginPath is where the sign-on for a server is kept, beside the configuration file.
func LoginPath(dir, server string) string {
	sum := sha256.Sum256([]byte(server))
	return filepath.Join(dir, "login-"+hex.EncodeToString(sum[:6])+".json")
}

// LoadLogin reads a sign-on; none is nil.
func LoadLogin(path string) (*Login, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read sign-on: %w", err)
	}
	l := &Login{}
	if err := json.Unmarshal(raw, l); err != nil {
		return nil, fmt.Errorf("read sign-on %s: %w", path, err)
	}
	return l, nil
}

// Save replaces the file, which its owner alone may read.
func (l *Login) Save(path string) error {
	raw, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("keep sign-on: %w", err)
	}
	return replacePrivate(path, append(raw, '\n'))
}

// NewLogin is the sign-on of a server before there are tokens.
func NewLogin(server string, s *pb.SignOn) *Login {
	return &Login{Server: server, Issuer: s.GetIssuer(), ClientID: s.GetClientId(), Scopes: s.GetScopes(),
		TokenEndpoint: s.GetTokenEndpoint(), CAPEM: s.GetCaPem()}
}

// Device is a sign-on that waits for a person at the provider's page.
type Device struct {
	// URL is the page, with the code in it where the provider can do that, and Code the text to type there.
	URL, Code string

	l        *Login
	config   *oauth2.Config
	response *oauth2.DeviceAuthResponse
}

// Begin asks the provider for a code (RFC 8628, section 3.1).
func (l *Login) Begin(ctx context.Context, deviceEndpoint string) (*Device, error) {
	if deviceEndpoint == "" {
		return nil, fmt.Errorf("the provider %s has no device flow; use a token", l.Issuer)
	}
	config := l.oauth()
	config.Endpoint.DeviceAuthURL = deviceEndpoint
	ctx, err := l.calling(ctx)
	if err != nil {
		return nil, err
	}
	r, err := config.DeviceAuth(ctx)
	if err != nil {
		return nil, l.failed(err)
	}
	d := &Device{URL: r.VerificationURI, Code: r.UserCode, l: l, config: config, response: r}
	if r.VerificationURIComplete != "" {
		d.URL = r.VerificationURIComplete
	}
	return d, nil
}

// Finish waits until the person has signed on, and returns the sign-on with its tokens.
func (d *Device) Finish(ctx context.Context) (*Login, error) {
	ctx, err := d.l.calling(ctx)
	if err != nil {
		return nil, err
	}
	got, err := d.config.DeviceAccessToken(ctx, d.response)
	if err != nil {
		return nil, d.l.failed(err)
	}
	return d.l, d.l.take(got)
}

// failed distinguishes a provider that refuses from one that does not answer.
func (l *Login) failed(err error) error {
	var no *oauth2.RetrieveError
	if errors.As(err, &no) && no.Response.StatusCode < 500 || errors.Is(err, context.Canceled) {
		return fmt.Errorf("sign on with %s: %w", l.Issuer, err)
	}
	text := fmt.Sprintf("the provider of sign-ons, %s, does not answer: %v", l.Issuer, err)
	st, bad := status.New(codes.Unavailable, text).
		WithDetails(&errdetails.ErrorInfo{Reason: pb.Reason_SIGN_ON_UNAVAILABLE.String(), Domain: "ingot.dev"})
	if bad != nil {
		return errors.Join(err, bad)
	}
	return st.Err()
}

func (l *Login) oauth() *oauth2.Config {
	return &oauth2.Config{ClientID: l.ClientID, Scopes: l.Scopes, Endpoint: oauth2.Endpoint{TokenURL: l.TokenEndpoint,
		AuthStyle: oauth2.AuthStyleInParams}}
}

// calling is a context whose calls trust the provider's authorities.
func (l *Login) calling(ctx context.Context) (context.Context, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if l.CAPEM != "" {
		pool, err := x509.SystemCertPool()
		if err != nil || !pool.AppendCertsFromPEM([]byte(l.CAPEM)) {
			return nil, errors.Join(errors.New("the authorities of the provider cannot be read"), err)
		}
		cfg.RootCAs = pool
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: cfg, ForceAttemptHTTP2: true,
		DisableKeepAlives: true}
	return context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: transport, Timeout: providerTime}), nil
}

// take keeps what the provider has given.
func (l *Login) take(got *oauth2.Token) error {
	id, _ := got.Extra("id_token").(string) // endOf refuses the empty token
	end, err := endOf(id)
	if err != nil {
		return fmt.Errorf("the provider %s has given no ID token: %w", l.Issuer, err)
	}
	l.IDToken, l.ExpiresAt = id, end
	if got.RefreshToken != "" {
		l.RefreshToken = got.RefreshToken
	}
	return nil
}

// bearerSource returns the token of a call. A sign-on is renewed when its end is near.
type bearerSource struct {
	path  string
	clock clock.Clock

	mu    sync.Mutex
	login *Login
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b *bearerSource) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b.token(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (*bearerSource) RequireTransportSecurity() bool { return true }

// String keeps the token out of messages that print the value.
func (*bearerSource) String() string { return "sign-on" }

func (b *bearerSource) token(ctx context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fresh() {
		return b.login.IDToken, nil
	}
	// Another process may be renewing: providers take a refresh token once.
	unlock, err := lock(b.path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if l, err := LoadLogin(b.path); err == nil && l != nil {
		b.login = l
	}
	if b.fresh() {
		return b.login.IDToken, nil
	}
	if err := b.login.renew(ctx); err != nil {
		if b.clock.Now().Before(b.login.ExpiresAt) {
			return b.login.IDToken, nil // it is good still, and the provider may be back by the next call
		}
		return "", fmt.Errorf("%w (%w)", ErrLogin, err)
	}
	return b.login.IDToken, b.login.Save(b.path)
}

func (b *bearerSource) fresh() bool {
	return b.clock.Now().Before(b.login.ExpiresAt.Add(-renewBefore))
}

func (l *Login) renew(ctx context.Context) error {
	if l.RefreshToken == "" {
		return errors.New("the provider has given nothing to renew it with")
	}
	ctx, err := l.calling(ctx)
	if err != nil {
		return err
	}
	got, err := l.oauth().TokenSource(ctx, &oauth2.Token{RefreshToken: l.RefreshToken}).Token()
	if err != nil {
		return err
	}
	return l.take(got)
}

// lock waits for the file to be this process's alone.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock sign-on: %w", err)
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock sign-on: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil // which unlocks it
}
