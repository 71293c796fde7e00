// Package authority serves AuthorityService: the rotation of the CA.
package authority

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/ca"
	authoritystore "github.com/ingot-metal/ingot/controller/store/authority"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

// maxNames bounds those who may be left behind in one request.
const maxNames = 10_000

// Server implements AuthorityService.
type Server struct {
	baremetalv1.UnsafeAuthorityServiceServer

	*service.Base

	stores Stores
}

// Stores are what the services of this package read and write.
type Stores struct {
	Authorities *authoritystore.Store
}

// Register adds the service to a server.
func Register(r grpc.ServiceRegistrar, b *service.Base, stores Stores) {
	baremetalv1.RegisterAuthorityServiceServer(r, &Server{Base: b, stores: stores})
}

// GetAuthority implements AuthorityService.
func (s *Server) GetAuthority(
	ctx context.Context, _ *baremetalv1.GetAuthorityRequest,
) (*baremetalv1.Authority, error) {
	all, err := s.stores.Authorities.Authorities(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		if all, err = s.ofDirectory(); err != nil {
			return nil, err
		}
	}
	out := &baremetalv1.Authority{}
	for _, g := range slices.Backward(all) {
		m, err := s.message(g)
		if err != nil {
			return nil, err
		}
		out.Generations = append(out.Generations, m)
		if g.Withdrawn.IsZero() {
			out.TrustBundlePem = append(out.TrustBundlePem, g.Root...)
		}
	}
	if len(all) < 2 || !all[len(all)-2].Withdrawn.IsZero() {
		return out, nil
	}
	now := s.Clock.Now()
	out.Holders, out.HolderCount, err = s.stores.Authorities.Holders(ctx, all[len(all)-1].Number,
		now.Add(-s.Config.CAGrace), now)
	return out, err
}

// ofDirectory is the CA of an installation that never rotated it.
func (s *Server) ofDirectory() ([]authoritystore.Generation, error) {
	records, err := s.Config.CA.Records()
	if err != nil {
		return nil, err
	}
	out := make([]authoritystore.Generation, 0, len(records))
	for _, r := range records {
		out = append(out, s.sealed(r))
	}
	return out, nil
}

func (s *Server) sealed(r ca.Record) authoritystore.Generation {
	return authoritystore.Seal(s.Config.Secrets, r)
}

func (s *Server) message(g authoritystore.Generation) (*baremetalv1.Authority_Generation, error) {
	hash, ends, err := ca.Record{Generation: g.Number, Root: g.Root, Intermediate: g.Intermediate}.Hash()
	if err != nil {
		return nil, err
	}
	m := &baremetalv1.Authority_Generation{
		Generation: int32(g.Number), RootHash: hash, RootPem: g.Root, CreatedAt: service.StampIfSet(g.Created),
		CreatedBy: g.CreatedBy, EndsAt: service.Stamp(ends), WithdrawnAt: service.StampIfSet(g.Withdrawn),
		WithdrawnBy: g.WithdrawBy,
	}
	if !g.Withdrawn.IsZero() {
		m.VouchedUntil = service.Stamp(g.Withdrawn.Add(s.Config.CAGrace))
	}
	return m, nil
}

// RotateAuthority implements AuthorityService.
func (s *Server) RotateAuthority(
	ctx context.Context, r *baremetalv1.RotateAuthorityRequest,
) (*baremetalv1.Authority, error) {
	if err := validate.Comment("comment", r.GetComment()); err != nil {
		return nil, err
	}
	known, err := s.stores.Authorities.Authorities(ctx)
	if err != nil {
		return nil, err
	}
	if n := len(known); n > 1 && known[n-2].Withdrawn.IsZero() {
		return s.GetAuthority(ctx, nil) // it is under way
	}
	now := s.Clock.Now()
	next, err := s.Config.CA.Next(now)
	if errors.Is(err, ca.ErrNoRootKey) {
		return nil, failure.Precondition("AUTHORITY_KEY_MISSING",
			"%v; put root.key back into the directory of the CA on this controller until the rotation has begun", err)
	}
	if err != nil {
		return nil, err
	}
	before, err := s.ofDirectory()
	if err != nil {
		return nil, err
	}
	err = s.stores.Authorities.RotateAuthority(ctx, before, s.sealed(next), service.Actor(ctx), r.GetComment(), now)
	if err != nil {
		return nil, err
	}
	return s.GetAuthority(ctx, nil)
}

// WithdrawAuthority implements AuthorityService.
func (s *Server) WithdrawAuthority(
	ctx context.Context, r *baremetalv1.WithdrawAuthorityRequest,
) (*baremetalv1.Authority, error) {
	if len(r.GetLeaveBehind()) > maxNames {
		return nil, validate.Fault("leave_behind", "at most %d names", maxNames)
	}
	if err := validate.Comment("comment", r.GetComment()); err != nil {
		return nil, err
	}
	now := s.Clock.Now()
	err := s.stores.Authorities.WithdrawAuthority(ctx, authoritystore.Withdrawal{
		Generation: int(r.GetGeneration()), LeaveBehind: r.GetLeaveBehind(), Actor: service.Actor(ctx),
		Comment: r.GetComment(), ExpiredBefore: now.Add(-s.Config.CAGrace),
	}, now)
	if err != nil {
		return nil, err
	}
	return s.GetAuthority(ctx, nil)
}
