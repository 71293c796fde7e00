// Package view serves ViewService: lists of machines that are saved under a name.
package view

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	viewstore "github.com/ingot-metal/ingot/controller/store/view"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/filter"
)

// Server implements ViewService.
type Server struct {
	baremetalv1.UnsafeViewServiceServer

	*service.Base
}

// Register adds the service to a server.
func Register(r grpc.ServiceRegistrar, b *service.Base) {
	baremetalv1.RegisterViewServiceServer(r, &Server{Base: b})
}

// caller is who calls, and with which rights. Views are about no machine: a role for some machines is none of an admin,
// and good enough to share with.
func caller(ctx context.Context) viewstore.Caller {
	c, ok := auth.CallerFrom(ctx)
	return viewstore.Caller{
		Actor: service.Actor(ctx), Identity: auth.IdentityFrom(ctx), Admin: !ok || c.Scope.Covers(auth.ScopeAdmin),
		MayShare: !ok || c.Highest().Covers(auth.ScopeOperate),
	}
}

// SetView implements ViewService.
func (s *Server) SetView(ctx context.Context, r *baremetalv1.SetViewRequest) (*baremetalv1.View, error) {
	paths, err := mask(r.GetUpdateMask().GetPaths())
	if err != nil {
		return nil, err
	}
	v, err := checked(r.GetView(), paths)
	if err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	return s.Store.SetView(ctx, caller(ctx), v, s.Clock.Now(), append(opts, pgtx.Mask(paths))...)
}

// mask gives the fields that are to be changed.
func mask(paths []string) ([]string, error) {
	if len(paths) == 0 || slices.Equal(paths, []string{"*"}) {
		return viewstore.Fields(), nil
	}
	for _, p := range paths {
		if !slices.Contains(viewstore.Fields(), p) {
			return nil, validate.Fault("update_mask", "%q is none of %s", p, strings.Join(viewstore.Fields(), ", "))
		}
	}
	return paths, nil
}

// checked is what a client sends, in the form that is stored: with its name, and the fields that are to be changed.
func checked(in *baremetalv1.View, paths []string) (*baremetalv1.View, error) {
	err := validate.NewID("view.name", in.GetName())
	if in.GetName() == "" {
		err = validate.Fault("view.name", "required")
	}
	out := &baremetalv1.View{Name: in.GetName()}
	for _, p := range paths {
		if err == nil {
			err = set(out, in, p)
		}
	}
	return out, err
}

// set checks a field and takes it over.
func set(out, in *baremetalv1.View, path string) (err error) {
	switch path {
	case "title":
		out.Title, err = in.GetTitle(), validate.OptionalKey("view.title", in.GetTitle())
	case "description":
		out.Description, err = in.GetDescription(), validate.Comment("view.description", in.GetDescription())
	case "filter":
		var terms []filter.Term
		terms, err = query.Machines.Parse(in.GetFilter())
		out.Filter = filter.Format(terms)
	case "order_by":
		out.OrderBy, err = orderBy(in.GetOrderBy())
	case "columns":
		out.Columns, err = query.ParseColumns("view.columns", in.GetColumns())
	case "group_by":
		var count query.Count
		count, err = query.CountQuery(nil, in.GetGroupBy())
		out.GroupBy = count.Keys
	case "shared":
		out.Shared = in.GetShared()
	}
	return err
}

// orderBy writes an order with its key's own name.
func orderBy(text string) (string, error) {
	order, err := query.ParseOrder(text)
	if order.Desc {
		return order.By + " desc", err
	}
	return order.By, err
}

// GetView implements ViewService.
func (s *Server) GetView(ctx context.Context, r *baremetalv1.GetViewRequest) (*baremetalv1.View, error) {
	if err := validate.Key("name", r.GetName()); err != nil {
		return nil, err
	}
	return s.Store.GetView(ctx, caller(ctx), r.GetName())
}

// ListViews implements ViewService.
func (s *Server) ListViews(
	ctx context.Context, r *baremetalv1.ListViewsRequest,
) (*baremetalv1.ListViewsResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.View]{
		Name: "views", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.View, error) {
			return s.Store.ListViews(ctx, caller(ctx), after.ID, limit)
		},
		Place: service.ByID((*baremetalv1.View).GetName),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListViewsResponse{Views: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// DeleteView implements ViewService.
func (s *Server) DeleteView(ctx context.Context, r *baremetalv1.DeleteViewRequest) (*baremetalv1.View, error) {
	if err := validate.Key("name", r.GetName()); err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	return s.Store.DeleteView(ctx, caller(ctx), r.GetName(), s.Clock.Now(), opts...)
}
