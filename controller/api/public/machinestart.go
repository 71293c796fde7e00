package public

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/validate"
)

// RebootMachine implements MachineService.
func (s *Server) RebootMachine(
	ctx context.Context, r *baremetalv1.RebootMachineRequest,
) (*baremetalv1.Operation, error) {
	p := set(nil, validate.ParamMode, r.GetMode())
	p = set(p, validate.ParamTimeout, seconds(r.GetTimeoutSeconds()))
	return s.begin(ctx, work{
		machineID: r.GetMachineId(), requestID: r.GetRequestId(), kind: fleet.Reboot, planID: r.GetPlanId(), params: p,
		path: plain,
	})
}

// NetbootMachine implements MachineService.
func (s *Server) NetbootMachine(
	ctx context.Context, r *baremetalv1.NetbootMachineRequest,
) (*baremetalv1.Operation, error) {
	p := set(nil, validate.ParamMode, r.GetMode())
	p = set(p, validate.ParamTimeout, seconds(r.GetTimeoutSeconds()))
	if r.GetReboot() {
		p = set(p, validate.ParamReboot, "true")
	}
	return s.begin(ctx, work{
		machineID: r.GetMachineId(), requestID: r.GetRequestId(), kind: fleet.Netboot, params: p, path: plain,
	})
}

// ReimageMachine implements MachineService.
func (s *Server) ReimageMachine(
	ctx context.Context, r *baremetalv1.ReimageMachineRequest,
) (*baremetalv1.Operation, error) {
	p := set(nil, validate.ParamImage, r.GetImageRef())
	p = set(p, validate.ParamPath, r.GetPath())
	p = set(p, validate.ParamTimeout, seconds(r.GetTimeoutSeconds()))
	return s.begin(ctx, work{
		machineID: r.GetMachineId(), requestID: r.GetRequestId(), kind: fleet.Reimage, planID: r.GetPlanId(), params: p,
		path: plain,
	})
}

// ReconfigureMachine implements MachineService.
func (s *Server) ReconfigureMachine(
	ctx context.Context, r *baremetalv1.ReconfigureMachineRequest,
) (*baremetalv1.Operation, error) {
	p := set(nil, validate.ParamTimeout, seconds(r.GetTimeoutSeconds()))
	if r.GetConfig() != nil {
		// Checked before it is written down, so that a fault is named by its own field.
		err := firstError(validate.RequestID(r.GetRequestId()), validate.NetReconfig("config", r.GetConfig()))
		if err != nil {
			return nil, err
		}
		config, err := validate.ConfigParam(r.GetConfig())
		if err != nil {
			return nil, err
		}
		p = set(p, validate.ParamConfig, config)
	}
	return s.begin(ctx, work{
		machineID: r.GetMachineId(), requestID: r.GetRequestId(), kind: fleet.Reconfigure, params: p, path: plain,
	})
}

// EnterMaintenance implements MachineService.
func (s *Server) EnterMaintenance(
	ctx context.Context, r *baremetalv1.EnterMaintenanceRequest,
) (*baremetalv1.Operation, error) {
	return s.begin(ctx, work{
		machineID: r.GetMachineId(), requestID: r.GetRequestId(), kind: fleet.EnterMaintenance, comment: r.GetComment(),
		path: plain,
	})
}

// ExitMaintenance implements MachineService.
func (s *Server) ExitMaintenance(
	ctx context.Context, r *baremetalv1.ExitMaintenanceRequest,
) (*baremetalv1.Operation, error) {
	return s.begin(ctx, work{
		machineID: r.GetMachineId(), requestID: r.GetRequestId(), kind: fleet.ExitMaintenance, comment: r.GetComment(),
		path: plain,
	})
}

// CancelOperation implements MachineService.
func (s *Server) CancelOperation(
	ctx context.Context, r *baremetalv1.CancelOperationRequest,
) (*baremetalv1.Operation, error) {
	if err := validate.Key("operation_id", r.GetOperationId()); err != nil {
		return nil, err
	}
	return s.engine.Cancel(ctx, r.GetOperationId(), actor(ctx))
}
