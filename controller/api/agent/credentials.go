package agent

import (
	"context"
	"errors"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/secret"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/internal/failure"
)

// GetBMCCredentials gives a site agent the credentials of one BMC of its site.
func (s *Server) GetBMCCredentials(
	ctx context.Context, r *fleetv1.GetBMCCredentialsRequest,
) (*fleetv1.GetBMCCredentialsResponse, error) {
	who, err := agentOf(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.cfg.Store.Credentials.CredentialsFor(ctx, who.ID, r.GetMachineId(), r.GetCredentialsRef(),
		s.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	return s.bmcCredentials(c)
}

// bmcCredentials opens credentials, or a machine's own in place of them.
func (s *Server) bmcCredentials(
	c credentialstore.SealedCredentials,
) (*fleetv1.GetBMCCredentialsResponse, error) {
	var plain secret.BMC
	var err error
	if c.OwnOf != "" {
		plain, err = s.cfg.Secrets.OpenBMCOf(c.OwnOf, c.Ref, c.Sealed)
	} else {
		plain, err = s.cfg.Secrets.OpenBMC(c.Ref, c.Sealed)
	}
	if err != nil {
		return nil, s.sealed(err, "BMC credentials", c.Ref)
	}
	return &fleetv1.GetBMCCredentialsResponse{
		Username: plain.Username, Password: plain.Password, Version: c.Version,
		AllowedEndpoints: c.Allowed, AllowPlainHttp: c.PlainHTTP, AllowUnverifiedTls: c.UnverifiedTLS,
	}, nil
}

// MakeBMCPassword makes a password for the BMC of a command's machine and stores it before it answers.
func (s *Server) MakeBMCPassword(
	ctx context.Context, r *fleetv1.MakeBMCPasswordRequest,
) (*fleetv1.MakeBMCPasswordResponse, error) {
	sess, err := s.caller(ctx, "site")
	if err != nil {
		return nil, err
	}
	p, err := s.cfg.Store.Credentials.MakePassword(ctx, sess.AgentID, r.GetCommandId(), s.cfg.Clock.Now(),
		func(machineID string, current credentialstore.SealedCredentials) ([]byte, error) {
			plain, err := s.bmcCredentials(current)
			if err != nil {
				return nil, err
			}
			return s.cfg.Secrets.SealBMCOf(machineID, current.Ref, secret.BMC{Username: plain.GetUsername(),
				Password: secret.NewBMCPassword()}), nil
		})
	if err != nil {
		return nil, err
	}
	out := &fleetv1.MakeBMCPasswordResponse{NewVersion: p.Version, Tried: p.Tried}
	if out.Current, err = s.bmcCredentials(p.Current); err != nil || p.Sealed == nil {
		return out, err
	}
	plain, err := s.cfg.Secrets.OpenBMCOf(p.MachineID, p.Ref, p.Sealed)
	if err != nil {
		return nil, s.sealed(err, "BMC password of machine", p.MachineID)
	}
	out.NewPassword = plain.Password
	return out, nil
}

// SettleBMCPassword takes an agent's word of which password a BMC takes.
func (s *Server) SettleBMCPassword(
	ctx context.Context, r *fleetv1.SettleBMCPasswordRequest,
) (*fleetv1.SettleBMCPasswordResponse, error) {
	sess, err := s.caller(ctx, "site")
	if err != nil {
		return nil, err
	}
	err = s.cfg.Store.Credentials.SettlePassword(ctx, sess.AgentID, r.GetCommandId(), r.GetVersion(), r.GetAccepted(),
		s.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	return &fleetv1.SettleBMCPasswordResponse{}, nil
}

// GetSSHCredentials gives a site agent what it logs in to a machine of its site with.
func (s *Server) GetSSHCredentials(
	ctx context.Context, r *fleetv1.GetSSHCredentialsRequest,
) (*fleetv1.GetSSHCredentialsResponse, error) {
	who, err := agentOf(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.cfg.Store.Credentials.SSHCredentialsFor(ctx, who.ID, r.GetMachineId(), r.GetCredentialsRef(),
		s.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	plain, err := s.cfg.Secrets.OpenSSH(c.Ref, c.Sealed)
	if err != nil {
		return nil, s.sealed(err, "SSH credentials", c.Ref)
	}
	return &fleetv1.GetSSHCredentialsResponse{Username: plain.Username, PrivateKey: plain.PrivateKey, Version: c.Version},
		nil
}

// GetMAASRegion gives a site agent the address and the key of the MAAS region of a machine of its site.
func (s *Server) GetMAASRegion(
	ctx context.Context, r *fleetv1.GetMAASRegionRequest,
) (*fleetv1.GetMAASRegionResponse, error) {
	who, err := agentOf(ctx)
	if err != nil {
		return nil, err
	}
	m, err := s.cfg.Store.Credentials.MAASRegionFor(ctx, who.ID, r.GetMachineId(), r.GetRegionRef(), s.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	key, err := s.cfg.Secrets.OpenMAAS(m.Ref, m.Sealed)
	if err != nil {
		return nil, s.sealed(err, "MAAS region", m.Ref)
	}
	return &fleetv1.GetMAASRegionResponse{
		Endpoint: m.Endpoint, ApiKey: string(key), CaPem: m.CA, Version: m.Version, UserData: m.UserData,
		RetainMachines: m.RetainMachines,
	}, nil
}

// sealed makes of an error in opening a secret what the agent is told. That the key is missing is the operator's.
func (s *Server) sealed(err error, what, ref string) error {
	if !errors.Is(err, secret.ErrSealed) {
		return err
	}
	s.cfg.Logger.Error("a secret cannot be opened: set it again, or bring back the key file", "secret", what, "ref", ref)
	return failure.NotFound("CREDENTIALS_NOT_FOUND", "this controller does not have the key of the %s %q", what, ref)
}
