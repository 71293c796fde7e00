package agent

import (
	"context"
	"errors"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/internal/failure"
)

// GetBMCCredentials gives a site agent the credentials of one BMC of its site.
func (s *Server) GetBMCCredentials(
	ctx context.Context, r *fleetv1.GetBMCCredentialsRequest,
) (*fleetv1.GetBMCCredentialsResponse, error) {
	who, ok := auth.AgentFrom(ctx)
	if !ok {
		return nil, failure.Unauthenticated("CERTIFICATE_REQUIRED", "a client certificate is required")
	}
	c, err := s.cfg.Store.CredentialsFor(ctx, who.ID, r.GetMachineId(), r.GetCredentialsRef(), s.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	plain, err := s.cfg.Secrets.OpenBMC(c.Ref, c.Sealed)
	if errors.Is(err, secret.ErrSealed) {
		s.cfg.Logger.Error("BMC credentials cannot be opened: set them again, or bring back the key file", "credentials_ref",
			c.Ref)
		return nil, failure.NotFound("CREDENTIALS_NOT_FOUND", "this controller does not have the key of the credentials %q",
			c.Ref)
	}
	if err != nil {
		return nil, err
	}
	return &fleetv1.GetBMCCredentialsResponse{
		Username: plain.Username, Password: plain.Password, Version: c.Version,
		AllowedEndpoints: c.Allowed, AllowPlainHttp: c.PlainHTTP, AllowUnverifiedTls: c.UnverifiedTLS,
	}, nil
}

// GetSSHCredentials gives a site agent what it logs in to a machine of its site with.
func (s *Server) GetSSHCredentials(
	ctx context.Context, r *fleetv1.GetSSHCredentialsRequest,
) (*fleetv1.GetSSHCredentialsResponse, error) {
	who, ok := auth.AgentFrom(ctx)
	if !ok {
		return nil, failure.Unauthenticated("CERTIFICATE_REQUIRED", "a client certificate is required")
	}
	c, err := s.cfg.Store.SSHCredentialsFor(ctx, who.ID, r.GetMachineId(), r.GetCredentialsRef(), s.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	plain, err := s.cfg.Secrets.OpenSSH(c.Ref, c.Sealed)
	if errors.Is(err, secret.ErrSealed) {
		s.cfg.Logger.Error("SSH credentials cannot be opened: set them again, or bring back the key file", "credentials_ref",
			c.Ref)
		return nil, failure.NotFound("CREDENTIALS_NOT_FOUND", "this controller does not have the key of the credentials %q",
			c.Ref)
	}
	if err != nil {
		return nil, err
	}
	return &fleetv1.GetSSHCredentialsResponse{Username: plain.Username, PrivateKey: plain.PrivateKey, Version: c.Version},
		nil
}
