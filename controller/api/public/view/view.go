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
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/savedview"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	viewstore "github.com/ingot-metal/ingot/controller/store/view"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/filter"
)

// Server implements ViewService.
type Server struct {
	baremetalv1.UnsafeViewServiceServer

	*service.Base

	stores Stores
}

// Stores are what the services of this package read and write.
type Stores struct {
	Views *viewstore.Store
}

// Register adds the service to a server.
func Register(r grpc.ServiceRegistrar, b *service.Base, stores Stores) {
	baremetalv1.RegisterViewServiceServer(r, &Server{Base: b, stores: stores})
}

// caller is who calls, and with which rights. Views are about no machine: a role for some machines is none of an admin,
// and good enough to share with.
func caller(ctx context.Context) savedview.Caller {
	c, ok := call.Caller(ctx)
	return savedview.Caller{
		Actor: service.Actor(ctx), Identity: call.Identity(ctx), Admin: !ok || c.Scope.Covers(access.ScopeAdmin),
		MayShare: !ok || c.Highest().Covers(access.ScopeOperate),
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
	who := caller(ctx)
	return answer(who)(s.stores.Views.SetView(ctx, who, v, s.Clock.Now(), append(opts, pgtx.Mask(paths))...))
}

// answer makes the message of a view that the caller sees, unless there is an error.
func answer(who savedview.Caller) func(savedview.View, error) (*baremetalv1.View, error) {
	return func(v savedview.View, err error) (*baremetalv1.View, error) {
		if err != nil {
			return nil, err
		}
		return message(who, v), nil
	}
}

func message(who savedview.Caller, v savedview.View) *baremetalv1.View {
	return &baremetalv1.View{
		Name: v.Name, Title: v.Title, Description: v.Description, Filter: v.Filter, OrderBy: v.OrderBy, Columns: v.Columns,
		GroupBy: v.GroupBy, Shared: v.Shared, CreatedBy: v.CreatedBy, Own: who.Owns(v),
		CreatedAt: convert.Timestamp(v.CreatedAt), UpdatedAt: convert.Timestamp(v.UpdatedAt), Version: v.Version,
	}
}

// mask returns the fields to change.
func mask(paths []string) ([]string, error) {
	if len(paths) == 0 || slices.Equal(paths, []string{"*"}) {
		return savedview.Fields(), nil
	}
	for _, p := range paths {
		if !slices.Contains(savedview.Fields(), p) {
			return nil, validate.Fault("update_mask", "%q is none of %s", p, strings.Join(savedview.Fields(), ", "))
		}
	}
	return paths, nil
}

// checked is what a client sends, in the form that is stored: with its name, and the fields to change.
func checked(in *baremetalv1.View, paths []string) (savedview.View, error) {
	err := validate.NewID("view.name", in.GetName())
	if in.GetName() == "" {
		err = validate.Fault("view.name", "required")
	}
	out := savedview.View{Name: in.GetName()}
	for _, p := range paths {
		if err == nil {
			err = set(&out, in, p)
		}
	}
	return out, err
}

// set checks a field and takes it over.
func set(out *savedview.View, in *baremetalv1.View, path string) (err error) {
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
	who := caller(ctx)
	return answer(who)(s.stores.Views.GetView(ctx, who, r.GetName()))
}

// ListViews implements ViewService.
func (s *Server) ListViews(
	ctx context.Context, r *baremetalv1.ListViewsRequest,
) (*baremetalv1.ListViewsResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.View]{
		Name: "views", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.View, error) {
			who := caller(ctx)
			found, err := s.stores.Views.ListViews(ctx, who, after.ID, limit)
			out := make([]*baremetalv1.View, len(found))
			for i, v := range found {
				out[i] = message(who, v)
			}
			return out, err
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
	who := caller(ctx)
	return answer(who)(s.stores.Views.DeleteView(ctx, who, r.GetName(), s.Clock.Now(), opts...))
}
