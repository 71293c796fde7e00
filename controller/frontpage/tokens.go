package frontpage

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/ids"
)

const (
	defaultTokenLife = 24 * time.Hour
	maxTokenLife     = 30 * 24 * time.Hour
	// secretBytes: 256 random bits, so that a plain hash of them is enough.
	secretBytes = 32
)

// IssueBootstrapToken implements AdminService.
func (s *Server) IssueBootstrapToken(ctx context.Context, r *baremetalv1.IssueBootstrapTokenRequest) (*baremetalv1.IssueBootstrapTokenResponse, error) {
	t, life, err := newToken(r)
	if err != nil {
		return nil, err
	}
	now := s.clock.Now()
	t.TokenID, t.Secret, t.Actor, t.ExpiresAt = ids.New(ids.Token), ids.Secret(secretBytes), actor(ctx), now.Add(life)
	// Made first: a token without its bundle is of no use to anybody.
	bundle, err := s.cfg.Bundle(t.TokenID, t.Secret, now)
	if err != nil {
		return nil, err
	}
	token, err := s.store.IssueToken(ctx, t, now)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.IssueBootstrapTokenResponse{Token: token, Bundle: bundle}, nil
}

func newToken(r *baremetalv1.IssueBootstrapTokenRequest) (store.NewToken, time.Duration, error) {
	t := store.NewToken{
		MachineID: r.GetMachineId(), Site: r.GetSite(), Region: r.GetRegion(), Provider: r.GetProvider(), Serial: r.GetSerial(),
	}
	err := firstError(
		validate.OptionalKey("region", t.Region), validate.OptionalKey("serial", t.Serial),
		validate.Name("provider", t.Provider), validate.Name("site", t.Site),
		tokenRole(r, &t), tokenMAC(r, &t),
	)
	if err != nil {
		return t, 0, err
	}
	life, err := tokenLife(r.GetLifetime())
	return t, life, err
}

// tokenRole says what the agent will be, and asks for what that needs.
func tokenRole(r *baremetalv1.IssueBootstrapTokenRequest, t *store.NewToken) error {
	switch r.GetRole() {
	case baremetalv1.AgentRole_AGENT_ROLE_UNSPECIFIED, baremetalv1.AgentRole_AGENT_ROLE_HOST:
		t.Role = "host"
		return validate.Key("machine_id", r.GetMachineId())
	case baremetalv1.AgentRole_AGENT_ROLE_SITE:
		t.Role = "site"
		if r.GetMachineId() != "" {
			return validate.Fault("machine_id", "a site agent belongs to no machine")
		}
		return validate.Key("site", r.GetSite())
	case baremetalv1.AgentRole_AGENT_ROLE_INSTALLER:
		return validate.Fault("role", "installers enrol at their site, without a token")
	}
	return validate.Fault("role", "HOST or SITE")
}

func tokenMAC(r *baremetalv1.IssueBootstrapTokenRequest, t *store.NewToken) error {
	if r.GetMacAddress() == "" {
		return nil
	}
	mac, ok := validate.MAC(r.GetMacAddress())
	if !ok {
		return validate.Fault("mac_address", "not an EUI-48 such as 52:54:00:12:34:56")
	}
	t.MAC = mac
	return nil
}

func tokenLife(d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return defaultTokenLife, nil
	}
	life := d.AsDuration()
	if d.CheckValid() != nil || life < 0 || life > maxTokenLife {
		return 0, validate.Fault("lifetime", "0 to %v; 0 means %v", maxTokenLife, defaultTokenLife)
	}
	return orElse(life, defaultTokenLife), nil
}

// ListBootstrapTokens implements AdminService.
func (s *Server) ListBootstrapTokens(ctx context.Context, r *baremetalv1.ListBootstrapTokensRequest) (*baremetalv1.ListBootstrapTokensResponse, error) {
	size, err := validate.PageSize(r.GetPageSize())
	if err != nil {
		return nil, err
	}
	page, err := validate.ParsePage(r.GetPageToken(), "tokens", "")
	if err != nil {
		return nil, err
	}
	all, err := s.store.ListTokens(ctx, page.Time, page.ID, size+1)
	if err != nil {
		return nil, err
	}
	out := &baremetalv1.ListBootstrapTokensResponse{Tokens: all}
	if len(all) > int(size) {
		out.Tokens = all[:size]
		last := out.Tokens[size-1]
		out.NextPageToken = validate.Page{ID: last.GetTokenId(), Time: last.GetCreatedAt().AsTime()}.Token("tokens", "")
	}
	return out, nil
}

// RevokeBootstrapToken implements AdminService.
func (s *Server) RevokeBootstrapToken(ctx context.Context, r *baremetalv1.RevokeBootstrapTokenRequest) (*baremetalv1.BootstrapToken, error) {
	if err := validate.Key("token_id", r.GetTokenId()); err != nil {
		return nil, err
	}
	return s.store.RevokeToken(ctx, r.GetTokenId(), actor(ctx), s.clock.Now())
}
