// Package access serves AccessService, and holds callers whose roles are for some machines to those machines: by
// Interceptor, which every call passes, and by the walk of package service, which lists of machines come from.
package access

import (
	"context"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/call"
	accessstore "github.com/ingot-metal/ingot/controller/store/access"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Server implements the services of this package. The embedded interfaces make a method that is missing a compile
// error.
type Server struct {
	baremetalv1.UnsafeAccessServiceServer

	*service.Base

	stores Stores
}

// Stores are what the services of this package read and write.
type Stores struct {
	Access *accessstore.Store
}

// Register adds the services of this package to a server.
func Register(r grpc.ServiceRegistrar, b *service.Base, stores Stores) {
	s := &Server{Base: b, stores: stores}
	baremetalv1.RegisterAccessServiceServer(r, s)
}

// GetSignOn implements AccessService.
func (s *Server) GetSignOn(ctx context.Context, _ *baremetalv1.GetSignOnRequest) (*baremetalv1.SignOn, error) {
	if s.Config.SignOn == nil {
		return nil, failure.Precondition("SIGN_ON_OFF",
			"people do not sign on here: the controller's configuration has no sign_on; use a token (ingot token create)")
	}
	return s.Config.SignOn(ctx)
}

// GetCaller implements AccessService.
func (s *Server) GetCaller(ctx context.Context, _ *baremetalv1.GetCallerRequest) (*baremetalv1.Caller, error) {
	c, ok := call.Caller(ctx)
	if !ok {
		return &baremetalv1.Caller{Name: service.Actor(ctx)}, nil
	}
	out := &baremetalv1.Caller{Name: c.Name, Address: c.Address, Kind: "token", Scope: c.Scope.String(),
		ExpiresAt: service.StampIfSet(c.TokenEnds)}
	if c.Person != nil {
		out.Kind, out.Scope = "person", ""
		out.Issuer, out.Subject, out.Groups = c.Person.Issuer, c.Person.Subject, c.Person.Groups
		out.SessionId, out.ExpiresAt = c.Person.Session, service.Stamp(c.Person.ExpiresAt)
	}
	for _, g := range c.Grants {
		out.Roles = append(out.Roles, &baremetalv1.Caller_Role{
			Role: string(g.Role), Selection: g.Selection, BindingId: g.Binding, ExpiresAt: service.StampIfSet(g.ExpiresAt),
		})
	}
	return out, nil
}
