package admin

import (
	"context"
	"crypto/sha256"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

const (
	defaultAPITokenLife = 90 * 24 * time.Hour
	maxAPITokenLife     = 3650 * 24 * time.Hour
)

// CreateAPIToken implements AdminService.
func (s *Server) CreateAPIToken(
	ctx context.Context, r *baremetalv1.CreateAPITokenRequest,
) (*baremetalv1.CreateAPITokenResponse, error) {
	if !auth.ValidName(r.GetName()) {
		return nil, validate.Fault("name", "1 to 63 characters of a-z, 0-9 and inner . _ -")
	}
	if r.GetName() == history.System || ids.Valid(ids.Agent, r.GetName()) {
		return nil, validate.Fault("name", "the audit log knows the controllers, or an agent, by it")
	}
	scope, err := access.ParseScope(r.GetScope())
	if err != nil {
		return nil, validate.Fault("scope", "read, operate, report or admin")
	}
	selection, err := query.Selection("selection", r.GetSelection())
	if err != nil {
		return nil, err
	}
	if scope == access.ScopeReport && !query.NamesPlace(selection) {
		return nil, validate.Fault("selection", "a token that reports is bound to one machine_id or one site")
	}
	now := s.Clock.Now()
	ends, err := apiTokenEnd(ctx, r.GetLifetime(), now)
	if err != nil {
		return nil, err
	}
	for _, t := range s.fileTokens() {
		if t.Name == r.GetName() {
			return nil, failure.AlreadyExists("API_TOKEN_EXISTS",
				"the controller's token file has a token %q; choose another name", t.Name).
				WithField("name", "taken by a token of the file")
		}
	}
	secret, _ := auth.NewToken()
	maker, _ := call.Caller(ctx)
	token, err := s.stores.Credentials.CreateAPIToken(ctx, credentialstore.NewAPIToken{
		ID:        ids.New(ids.APIToken),
		Name:      r.GetName(),
		Maker:     maker,
		Actor:     service.Actor(ctx),
		Scope:     scope,
		Hash:      sha256.Sum256([]byte(secret)),
		ExpiresAt: ends,
		Selection: selection,
	}, now)
	if err != nil {
		return nil, err
	}
	s.refreshTokens()
	return &baremetalv1.CreateAPITokenResponse{Token: token, Secret: secret}, nil
}

// apiTokenEnd returns when a new token expires: not after the token that makes it.
func apiTokenEnd(ctx context.Context, lifetime *durationpb.Duration, now time.Time) (time.Time, error) {
	life, err := apiTokenLife(lifetime)
	if err != nil {
		return time.Time{}, err
	}
	ends := now.Add(life)
	maker, _ := call.Caller(ctx) // none in the controller's own work, whose tokens end by their lifetime alone
	if maker.TokenEnds.IsZero() || !ends.After(maker.TokenEnds) {
		return ends, nil
	}
	if lifetime.AsDuration() != 0 {
		return time.Time{}, validate.Fault("lifetime", "the token that makes it ends at %s",
			maker.TokenEnds.UTC().Format(time.RFC3339))
	}
	return maker.TokenEnds, nil
}

func apiTokenLife(d *durationpb.Duration) (time.Duration, error) {
	if d == nil || d.AsDuration() == 0 {
		return defaultAPITokenLife, nil
	}
	life := d.AsDuration()
	if d.CheckValid() != nil || life < 0 || life > maxAPITokenLife {
		return 0, validate.Fault("lifetime", "0 to %v; 0 means %v", maxAPITokenLife, defaultAPITokenLife)
	}
	return life, nil
}

func (s *Server) fileTokens() []access.FileToken {
	if s.Config.Tokens == nil {
		return nil
	}
	return s.Config.Tokens.OfFile()
}

func (s *Server) refreshTokens() {
	if s.Config.Tokens != nil {
		s.Config.Tokens.Refresh()
	}
}

// ListAPITokens implements AdminService. Tokens of the file come first, on the first page.
func (s *Server) ListAPITokens(
	ctx context.Context, r *baremetalv1.ListAPITokensRequest,
) (*baremetalv1.ListAPITokensResponse, error) {
	of := ""
	if r.GetAll() {
		of = "all"
	}
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.APIToken]{
		Name: "api-tokens", Filter: of,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.APIToken, error) {
			return s.stores.Credentials.ListAPITokens(ctx, r.GetAll(), after.ID, limit, s.Clock.Now())
		},
		Place: service.ByID((*baremetalv1.APIToken).GetTokenId),
	}, r)
	if err != nil {
		return nil, err
	}
	ofFile := s.fileTokens()
	out := &baremetalv1.ListAPITokensResponse{NextPageToken: p.Next, TotalSize: p.Total}
	first := r.GetPageToken() == ""
	if counted := p.Total > 0 || first && len(p.Rows) == 0; counted {
		out.TotalSize += int32(len(ofFile))
	}
	if first {
		for _, t := range ofFile {
			out.Tokens = append(out.Tokens, &baremetalv1.APIToken{Name: t.Name, Scope: t.Scope.String(), Source: "file",
				Selection: t.Selection})
		}
	}
	out.Tokens = append(out.Tokens, p.Rows...)
	return out, nil
}

// RevokeAPIToken implements AdminService.
func (s *Server) RevokeAPIToken(
	ctx context.Context, r *baremetalv1.RevokeAPITokenRequest,
) (*baremetalv1.APIToken, error) {
	if err := validate.Key("token_id", r.GetTokenId()); err != nil {
		return nil, err
	}
	t, err := s.stores.Credentials.RevokeAPIToken(ctx, r.GetTokenId(), service.Actor(ctx), s.Clock.Now())
	if err != nil {
		return nil, err
	}
	s.refreshTokens()
	return t, nil
}
