// Oidcprovider is the example server of github.com/zitadel/oidc as a provider of OpenID Connect for tests. It has
// people and groups from a file that is read again for each token.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

var (
	listen   = flag.String("listen", "localhost:9998", "address, which is the issuer's too")
	people   = flag.String("people", "", `file of people: {"ada": {"password": "secret", "groups": ["ops"]}}`)
	redirect = flag.String("redirect", "", "redirect URI of the client web, whose secret is secret")
	life     = flag.Duration("life", time.Hour, "how long ID tokens are good")
)

type person struct {
	Password string   `json:"password"`
	Groups   []string `json:"groups"`
}

// file is who there is now.
type file string

func (f file) read() map[string]person {
	all := map[string]person{}
	raw, err := os.ReadFile(string(f))
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil {
		slog.Error("people not read", "error", err)
	}
	return all
}

// GetUserByID implements storage.UserStore; an id is a name.
func (f file) GetUserByID(id string) *storage.User {
	p, ok := f.read()[id]
	if !ok {
		return nil
	}
	return &storage.User{ID: id, Username: id, Password: p.Password, FirstName: id}
}

// GetUserByUsername implements storage.UserStore.
func (f file) GetUserByUsername(name string) *storage.User { return f.GetUserByID(name) }

// ExampleClientID implements storage.UserStore.
func (file) ExampleClientID() string { return storage.ServiceUserID }

// groups are put into ID tokens. What a device was allowed keeps its time.
type groups struct {
	*storage.Storage
	people file

	mu      sync.Mutex
	allowed map[string]time.Time
}

// SetUserinfoFromRequest implements op.CanSetUserinfoFromRequest.
func (g *groups) SetUserinfoFromRequest(
	ctx context.Context, info *oidc.UserInfo, r op.IDTokenRequest, scopes []string,
) error {
	info.PreferredUsername = r.GetSubject()
	info.AppendClaims("groups", g.people.read()[r.GetSubject()].Groups)
	return g.Storage.SetUserinfoFromRequest(ctx, info, r, scopes)
}

// CompleteDeviceAuthorization notes when it was.
func (g *groups) CompleteDeviceAuthorization(ctx context.Context, userCode, subject string) error {
	g.mu.Lock()
	g.allowed[subject] = time.Now()
	g.mu.Unlock()
	return g.Storage.CompleteDeviceAuthorization(ctx, userCode, subject)
}

// GetDeviceAuthorizatonState returns the state with its time.
func (g *groups) GetDeviceAuthorizatonState(
	ctx context.Context, clientID, deviceCode string,
) (*op.DeviceAuthorizationState, error) {
	state, err := g.Storage.GetDeviceAuthorizatonState(ctx, clientID, deviceCode)
	if err != nil || !state.Done {
		return state, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	timed := *state
	timed.AuthTime = g.allowed[state.Subject]
	return &timed, nil
}

// CreateAccessAndRefreshTokens knows which client a device was allowed for, which the example does not.
func (g *groups) CreateAccessAndRefreshTokens(
	ctx context.Context, r op.TokenRequest, refresh string,
) (string, string, time.Time, error) {
	if d, ok := r.(*op.DeviceAuthorizationState); ok {
		r = &storage.AuthRequest{ApplicationID: d.ClientID, UserID: d.Subject, Scopes: d.Scopes}
	}
	return g.Storage.CreateAccessAndRefreshTokens(ctx, r, refresh)
}

// TokenRequestByRefreshToken returns the request with the time of the device's sign-on.
func (g *groups) TokenRequestByRefreshToken(ctx context.Context, refresh string) (op.RefreshTokenRequest, error) {
	r, err := g.Storage.TokenRequestByRefreshToken(ctx, refresh)
	if one, ok := r.(*storage.RefreshTokenRequest); ok && err == nil && one.AuthTime.IsZero() {
		g.mu.Lock()
		defer g.mu.Unlock()
		one.AuthTime = g.allowed[r.GetSubject()]
	}
	return r, err
}

// GetClientByClientID returns clients that may do everything.
func (g *groups) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := g.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return client{c}, nil
}

type client struct{ op.Client }

// GrantTypes implements op.Client.
func (client) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeRefreshToken, oidc.GrantTypeDeviceCode}
}

// IDTokenLifetime implements op.Client.
func (client) IDTokenLifetime() time.Duration { return *life }

// IDTokenUserinfoClaimsAssertion implements op.Client.
func (client) IDTokenUserinfoClaimsAssertion() bool { return true }

func main() {
	flag.Parse()
	storage.RegisterClients(storage.NativeClient("native"), storage.WebClient("web", "secret", *redirect))
	who := file(*people)
	store := &groups{Storage: storage.NewStorage(who), people: who, allowed: map[string]time.Time{}}
	handler := exampleop.SetupServer("http://"+*listen, store, slog.Default(), false)
	server := &http.Server{Addr: *listen, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	if err := server.ListenAndServe(); err != nil {
		slog.Error("provider ended", "error", err)
		os.Exit(1)
	}
}
