package frontpage

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/validate"
)

// SetBMCCredentials implements AdminService.
func (s *Server) SetBMCCredentials(ctx context.Context, r *baremetalv1.SetBMCCredentialsRequest) (*baremetalv1.BMCCredentials, error) {
	if err := validate.BMCCredentials(r); err != nil {
		return nil, err
	}
	ref := r.GetCredentialsRef()
	sealed := s.cfg.Secrets.SealBMC(ref, secret.BMC{Username: r.GetUsername(), Password: r.GetPassword()})
	opts, err := writeOptions(r)
	if err != nil {
		return nil, err
	}
	stored, err := s.store.SetCredentials(ctx, ref, sealed, actor(ctx), s.clock.Now(), opts...)
	if err != nil {
		return nil, err
	}
	return s.credentials(stored), nil
}

// ListBMCCredentials implements AdminService.
func (s *Server) ListBMCCredentials(ctx context.Context, r *baremetalv1.ListBMCCredentialsRequest) (*baremetalv1.ListBMCCredentialsResponse, error) {
	p, err := page(ctx, s, list[*baremetalv1.BMCCredentials]{
		name: "bmc-credentials", filter: "",
		read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.BMCCredentials, error) {
			all, err := s.store.ListCredentials(ctx, after.ID, limit)
			return each(all, err, s.credentials)
		},
		place: byID((*baremetalv1.BMCCredentials).GetCredentialsRef),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListBMCCredentialsResponse{Credentials: p.rows, NextPageToken: p.next, TotalSize: p.total}, nil
}

// credentials shows whose they are. Where the key is lost the user name stays empty: they must be set again.
func (s *Server) credentials(c store.SealedCredentials) *baremetalv1.BMCCredentials {
	out := &baremetalv1.BMCCredentials{CredentialsRef: c.Ref, Version: c.Version, UpdatedAt: stamp(c.UpdatedAt)}
	if plain, err := s.cfg.Secrets.OpenBMC(c.Ref, c.Sealed); err == nil {
		out.Username = plain.Username
	}
	return out
}

// DeleteBMCCredentials implements AdminService.
func (s *Server) DeleteBMCCredentials(ctx context.Context, r *baremetalv1.DeleteBMCCredentialsRequest) (*baremetalv1.BMCCredentials, error) {
	if err := validate.Key("credentials_ref", r.GetCredentialsRef()); err != nil {
		return nil, err
	}
	opts, err := writeOptions(r)
	if err != nil {
		return nil, err
	}
	gone, err := s.store.DeleteCredentials(ctx, r.GetCredentialsRef(), actor(ctx), s.clock.Now(), opts...)
	if err != nil {
		return nil, err
	}
	return s.credentials(gone), nil
}
