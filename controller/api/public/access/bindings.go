package access

import (
	"context"
	"fmt"
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/ids"
)

// maxMember bounds the name of a group or a subject, in bytes.
const maxMember = 512

// CreateRoleBinding implements AccessService.
func (s *Server) CreateRoleBinding(
	ctx context.Context, r *baremetalv1.CreateRoleBindingRequest,
) (*baremetalv1.RoleBinding, error) {
	b, err := s.binding(r.GetBinding())
	if err != nil {
		return nil, err
	}
	out, err := s.stores.Access.CreateRoleBinding(ctx, b, service.Actor(ctx), s.Clock.Now())
	if err != nil {
		return nil, err
	}
	s.refresh()
	return out, nil
}

// binding checks what a client sends.
func (s *Server) binding(b *baremetalv1.RoleBinding) (out access.RoleBinding, err error) {
	var roles []string
	for _, r := range access.Roles() {
		roles = append(roles, string(r))
	}
	member := b.GetGroup() + b.GetSubject()
	switch {
	case b.GetBindingId() != "":
		return out, validate.Fault("binding.binding_id", "set by the server")
	case !slices.Contains(roles, b.GetRole()):
		return out, validate.Fault("binding.role", "one of %s", strings.Join(roles, ", "))
	case (b.GetGroup() == "") == (b.GetSubject() == ""):
		return out, validate.Fault("binding.group", "either group or subject")
	case len(member) > maxMember || strings.ContainsRune(member, 0):
		return out, validate.Fault("binding.group", "at most %d bytes, without NUL", maxMember)
	}
	out = access.RoleBinding{ID: ids.New(ids.RoleBinding), Role: access.Role(b.GetRole()), Group: b.GetGroup(),
		Subject: b.GetSubject()}
	if out.Selection, err = query.Selection("binding.selection", b.GetSelection()); err != nil {
		return out, err
	}
	if at := b.GetExpiresAt(); at != nil {
		if out.ExpiresAt = at.AsTime(); at.CheckValid() != nil || !out.ExpiresAt.After(s.Clock.Now()) {
			return out, validate.Fault("binding.expires_at", "a time that is to come")
		}
	}
	return out, nil
}

func (s *Server) refresh() {
	if s.Config.Tokens != nil {
		s.Config.Tokens.Refresh()
	}
}

// ListRoleBindings implements AccessService.
func (s *Server) ListRoleBindings(
	ctx context.Context, r *baremetalv1.ListRoleBindingsRequest,
) (*baremetalv1.ListRoleBindingsResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.RoleBinding]{
		Name: "role-bindings", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.RoleBinding, error) {
			return s.stores.Access.ListRoleBindings(ctx, after.ID, limit)
		},
		Place: service.ByID((*baremetalv1.RoleBinding).GetBindingId),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListRoleBindingsResponse{Bindings: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// DeleteRoleBinding implements AccessService.
func (s *Server) DeleteRoleBinding(
	ctx context.Context, r *baremetalv1.DeleteRoleBindingRequest,
) (*baremetalv1.RoleBinding, error) {
	if err := validate.Key("binding_id", r.GetBindingId()); err != nil {
		return nil, err
	}
	out, err := s.stores.Access.DeleteRoleBinding(ctx, r.GetBindingId(), service.Actor(ctx), s.Clock.Now())
	if err != nil {
		return nil, err
	}
	s.refresh()
	return out, nil
}

// ListSessions implements AccessService.
func (s *Server) ListSessions(
	ctx context.Context, r *baremetalv1.ListSessionsRequest,
) (*baremetalv1.ListSessionsResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Session]{
		Name: "sessions", Short: true, Filter: fmt.Sprint(r.GetAll()),
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Session, error) {
			return s.stores.Access.ListSessions(ctx, r.GetAll(), after.Time, after.ID, limit, s.Clock.Now())
		},
		Place: func(m *baremetalv1.Session) validate.Page {
			return validate.Page{ID: m.GetSessionId(), Time: m.GetCreatedAt().AsTime()}
		},
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListSessionsResponse{Sessions: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// RevokeSession implements AccessService.
func (s *Server) RevokeSession(
	ctx context.Context, r *baremetalv1.RevokeSessionRequest,
) (*baremetalv1.Session, error) {
	if err := validate.Key("session_id", r.GetSessionId()); err != nil {
		return nil, err
	}
	out, err := s.stores.Access.RevokeSession(ctx, r.GetSessionId(), service.Actor(ctx), s.Clock.Now())
	if err != nil {
		return nil, err
	}
	s.refresh()
	return out, nil
}
