package admin

import (
	"context"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/validate"
)

// GetServerInfo implements AdminService.
func (s *Server) GetServerInfo(
	ctx context.Context, _ *baremetalv1.GetServerInfoRequest,
) (*baremetalv1.ServerInfo, error) {
	return s.ServerInfo(ctx)
}

// ListControllers implements AdminService.
func (s *Server) ListControllers(
	ctx context.Context, r *baremetalv1.ListControllersRequest,
) (*baremetalv1.ListControllersResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Controller]{
		Name: "controllers", Short: true, Filter: fmt.Sprint(r.GetAll()),
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Controller, error) {
			return s.stores.Sessions.ListControllers(ctx, r.GetAll(), after.ID, limit, s.Clock.Now())
		},
		Place: service.ByID((*baremetalv1.Controller).GetControllerId),
	}, r)
	if err != nil {
		return nil, err
	}
	for _, k := range p.Rows {
		k.Answering = k.GetControllerId() == s.Config.Info.ControllerID
	}
	return &baremetalv1.ListControllersResponse{Controllers: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// ThawFleet implements AdminService.
func (s *Server) ThawFleet(ctx context.Context, r *baremetalv1.ThawFleetRequest) (*baremetalv1.ServerInfo, error) {
	if err := s.stores.Incarnations.Thaw(ctx, service.Actor(ctx), r.GetComment(), s.Clock.Now()); err != nil {
		return nil, err
	}
	return s.ServerInfo(ctx)
}
