package admin

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
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
func (s *Server) IssueBootstrapToken(
	ctx context.Context, r *baremetalv1.IssueBootstrapTokenRequest,
) (*baremetalv1.IssueBootstrapTokenResponse, error) {
	t, life, err := newToken(r)
	if err != nil {
		return nil, err
	}
	now := s.Clock.Now()
	t.TokenID, t.Actor, t.ExpiresAt = ids.New(ids.Token), service.Actor(ctx), now.Add(life)
	t.Secret, t.SecretOf = ids.Secret(secretBytes), s.Config.Secrets.BootstrapSecret
	if t.RequestID != "" {
		t.Secret = t.SecretOf(t.TokenID) // which a repeat can make again
	}
	// Made first: a token without its bundle is of no use to anybody.
	bundle, err := s.Config.Bundle(t.TokenID, t.Secret, now)
	if err != nil {
		return nil, err
	}
	token, err := s.stores.Agents.IssueToken(ctx, t, now)
	if err != nil {
		return nil, err
	}
	if id := token.GetTokenId(); id != t.TokenID {
		if bundle, err = s.Config.Bundle(id, t.SecretOf(id), token.GetCreatedAt().AsTime()); err != nil {
			return nil, err
		}
	}
	return &baremetalv1.IssueBootstrapTokenResponse{Token: token, Bundle: bundle}, nil
}

func newToken(r *baremetalv1.IssueBootstrapTokenRequest) (agentstore.NewToken, time.Duration, error) {
	t := agentstore.NewToken{
		MachineID: r.GetMachineId(), Site: r.GetSite(), Region: r.GetRegion(), Provider: r.GetProvider(),
		Serial: r.GetSerial(),
	}
	err := service.FirstError(
		validate.OptionalKey("region", t.Region), validate.OptionalKey("serial", t.Serial),
		validate.Name("provider", t.Provider), validate.Name("site", t.Site),
		tokenRole(r, &t), tokenMAC(r, &t), validate.OptionalRequestID(r.GetRequestId()),
	)
	if err != nil {
		return t, 0, err
	}
	life, err := tokenLife(r.GetLifetime())
	t.RequestID, t.Body = r.GetRequestId(), map[string]string{
		"role": t.Role, "lifetime": life.String(), "region": t.Region, "provider": t.Provider, "mac_address": t.MAC,
		"serial": t.Serial,
	}
	return t, life, err
}

// tokenRole says what the agent will be, and asks for what that needs.
func tokenRole(r *baremetalv1.IssueBootstrapTokenRequest, t *agentstore.NewToken) error {
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

func tokenMAC(r *baremetalv1.IssueBootstrapTokenRequest, t *agentstore.NewToken) error {
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
	return cmp.Or(life, defaultTokenLife), nil
}

// ListBootstrapTokens implements AdminService.
func (s *Server) ListBootstrapTokens(
	ctx context.Context, r *baremetalv1.ListBootstrapTokensRequest,
) (*baremetalv1.ListBootstrapTokensResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.BootstrapToken]{
		Name: "tokens", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.BootstrapToken, error) {
			return s.stores.Agents.ListTokens(ctx, after.Time, after.ID, limit)
		},
		Place: service.ByTime((*baremetalv1.BootstrapToken).GetTokenId,
			func(t *baremetalv1.BootstrapToken) time.Time { return t.GetCreatedAt().AsTime() }),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListBootstrapTokensResponse{Tokens: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// RevokeBootstrapToken implements AdminService.
func (s *Server) RevokeBootstrapToken(
	ctx context.Context, r *baremetalv1.RevokeBootstrapTokenRequest,
) (*baremetalv1.BootstrapToken, error) {
	if err := validate.Key("token_id", r.GetTokenId()); err != nil {
		return nil, err
	}
	return s.stores.Agents.RevokeToken(ctx, r.GetTokenId(), service.Actor(ctx), s.Clock.Now())
}
