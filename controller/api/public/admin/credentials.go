package admin

import (
	"context"
	"strconv"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/credential"
	"github.com/ingot-metal/ingot/controller/secret"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/validate"
)

// SetBMCCredentials implements AdminService.
func (s *Server) SetBMCCredentials(
	ctx context.Context, r *baremetalv1.SetBMCCredentialsRequest,
) (*baremetalv1.BMCCredentials, error) {
	if err := validate.BMCCredentials(r); err != nil {
		return nil, err
	}
	ref := r.GetCredentialsRef()
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	c := credential.Change{
		Ref: ref, Allowed: r.GetAllowedEndpoints(), PlainHTTP: r.AllowPlainHttp, UnverifiedTLS: r.AllowUnverifiedTls,
	}
	if r.GetPassword() != "" {
		c.Sealed = s.Config.Secrets.SealBMC(ref, secret.BMC{Username: r.GetUsername(), Password: r.GetPassword()})
	}
	stored, err := s.stores.Credentials.SetCredentials(ctx, c, service.Actor(ctx), s.Clock.Now(), opts...)
	if err != nil {
		return nil, err
	}
	return s.credentials(stored), nil
}

// ListBMCCredentials implements AdminService.
func (s *Server) ListBMCCredentials(
	ctx context.Context, r *baremetalv1.ListBMCCredentialsRequest,
) (*baremetalv1.ListBMCCredentialsResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.BMCCredentials]{
		Name: "bmc-credentials", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.BMCCredentials, error) {
			all, err := s.stores.Credentials.ListCredentials(ctx, after.ID, limit)
			return service.Each(all, err, s.credentials)
		},
		Place: service.ByID((*baremetalv1.BMCCredentials).GetCredentialsRef),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListBMCCredentialsResponse{Credentials: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// credentials shows whose they are. Where the key is lost the user name stays empty: they must be set again.
func (s *Server) credentials(c credentialstore.SealedCredentials) *baremetalv1.BMCCredentials {
	out := &baremetalv1.BMCCredentials{
		CredentialsRef: c.Ref, Version: c.Version, UpdatedAt: service.Stamp(c.UpdatedAt),
		AllowedEndpoints: c.Allowed, AllowPlainHttp: c.PlainHTTP, AllowUnverifiedTls: c.UnverifiedTLS, Adopted: c.Adopted,
		RefusedMachines: c.Refused, OwnPasswords: int32(c.Own), OpenPasswords: c.Open,
	}
	if plain, err := s.Config.Secrets.OpenBMC(c.Ref, c.Sealed); err == nil {
		out.Username = plain.Username
	}
	return out
}

// DeleteBMCCredentials implements AdminService.
func (s *Server) DeleteBMCCredentials(
	ctx context.Context, r *baremetalv1.DeleteBMCCredentialsRequest,
) (*baremetalv1.BMCCredentials, error) {
	if err := validate.Key("credentials_ref", r.GetCredentialsRef()); err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	gone, err := s.stores.Credentials.DeleteCredentials(
		ctx,
		r.GetCredentialsRef(),
		service.Actor(ctx),
		s.Clock.Now(),
		opts...)
	if err != nil {
		return nil, err
	}
	return s.credentials(gone), nil
}

// ListBMCCertificates implements AdminService.
func (s *Server) ListBMCCertificates(
	ctx context.Context, r *baremetalv1.ListBMCCertificatesRequest,
) (*baremetalv1.ListBMCCertificatesResponse, error) {
	if err := validate.OptionalKey("machine_id", r.GetMachineId()); err != nil {
		return nil, err
	}
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.BMCCertificate]{
		Name: "bmc-certificates", Short: true,
		Filter: r.GetMachineId() + " " + strconv.FormatBool(r.GetChanged()),
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.BMCCertificate, error) {
			f := credentialstore.BMCCertificateFilter{Changed: r.GetChanged(), MachineID: r.GetMachineId(), Limit: limit}
			f.AfterSite, f.AfterEndpoint, _ = strings.Cut(after.ID, " ")
			return s.stores.Credentials.ListBMCCertificates(ctx, f)
		},
		Subject: service.Subjects(s.Machine(r.GetMachineId())),
		Place:   service.ByID(func(c *baremetalv1.BMCCertificate) string { return c.GetSite() + " " + c.GetEndpoint() }),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListBMCCertificatesResponse{Certificates: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// TrustBMCCertificate implements AdminService.
func (s *Server) TrustBMCCertificate(
	ctx context.Context, r *baremetalv1.TrustBMCCertificateRequest,
) (*baremetalv1.BMCCertificate, error) {
	err := service.FirstError(validate.Key("machine_id", r.GetMachineId()), validate.Comment("comment", r.GetComment()))
	if err == nil && !fingerprint.MatchString(r.GetSha256()) {
		err = validate.Fault("sha256", "64 lower-case hexadecimal digits: the certificate that the BMC shows now")
	}
	if err != nil {
		return nil, err
	}
	return s.stores.Credentials.TrustBMCCertificate(ctx, r.GetMachineId(), r.GetSha256(), service.Actor(ctx),
		r.GetComment(), s.Clock.Now())
}

// UnparkBMC implements AdminService.
func (s *Server) UnparkBMC(
	ctx context.Context, r *baremetalv1.UnparkBMCRequest,
) (*baremetalv1.UnparkBMCResponse, error) {
	if err := service.FirstError(validate.Key("machine_id", r.GetMachineId()),
		validate.Comment("comment", r.GetComment())); err != nil {
		return nil, err
	}
	return s.stores.Credentials.UnparkBMC(ctx, r.GetMachineId(), service.Actor(ctx), r.GetComment(), s.Clock.Now())
}
