package public

import (
	"context"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/validate"
)

// GetServerInfo implements AdminService.
func (s *Server) GetServerInfo(
	ctx context.Context, _ *baremetalv1.GetServerInfoRequest,
) (*baremetalv1.ServerInfo, error) {
	return s.serverInfo(ctx)
}

// ListControllers implements AdminService.
func (s *Server) ListControllers(
	ctx context.Context, r *baremetalv1.ListControllersRequest,
) (*baremetalv1.ListControllersResponse, error) {
	p, err := page(ctx, s, list[*baremetalv1.Controller]{
		name: "controllers", filter: fmt.Sprint(r.GetAll()),
		read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Controller, error) {
			return s.store.ListControllers(ctx, r.GetAll(), after.ID, limit, s.clock.Now())
		},
		place: byID((*baremetalv1.Controller).GetControllerId),
	}, r)
	if err != nil {
		return nil, err
	}
	for _, k := range p.rows {
		k.Answering = k.GetControllerId() == s.cfg.Info.ControllerID
	}
	return &baremetalv1.ListControllersResponse{Controllers: p.rows, NextPageToken: p.next, TotalSize: p.total}, nil
}

// ThawFleet implements AdminService.
func (s *Server) ThawFleet(ctx context.Context, r *baremetalv1.ThawFleetRequest) (*baremetalv1.ServerInfo, error) {
	if err := s.store.Thaw(ctx, actor(ctx), r.GetComment(), s.clock.Now()); err != nil {
		return nil, err
	}
	return s.serverInfo(ctx)
}
