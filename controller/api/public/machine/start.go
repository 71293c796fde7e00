package machine

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/validate"
)

// RebootMachine has the operation of a reboot created; it implements MachineService.
func (s *Server) RebootMachine(
	ctx context.Context, r *baremetalv1.RebootMachineRequest,
) (*baremetalv1.Operation, error) {
	p := service.Set(nil, validate.ParamMode, r.GetMode())
	p = service.Set(p, validate.ParamTimeout, service.Seconds(r.GetTimeoutSeconds()))
	return s.Begin(ctx, service.Work{
		ValidateOnly: r.GetValidateOnly(),
		MachineID:    r.GetMachineId(), RequestID: r.GetRequestId(), Kind: fleet.Reboot, PlanID: r.GetPlanId(), Params: p,
		Path: service.Plain,
	})
}

// NetbootMachine implements MachineService.
func (s *Server) NetbootMachine(
	ctx context.Context, r *baremetalv1.NetbootMachineRequest,
) (*baremetalv1.Operation, error) {
	p := service.Set(nil, validate.ParamMode, r.GetMode())
	p = service.Set(p, validate.ParamTimeout, service.Seconds(r.GetTimeoutSeconds()))
	if r.GetReboot() {
		p = service.Set(p, validate.ParamReboot, "true")
	}
	return s.Begin(ctx, service.Work{
		ValidateOnly: r.GetValidateOnly(),
		MachineID:    r.GetMachineId(), RequestID: r.GetRequestId(), Kind: fleet.Netboot, Params: p, Path: service.Plain,
	})
}

// TestMachine implements MachineService.
func (s *Server) TestMachine(
	ctx context.Context, r *baremetalv1.TestMachineRequest,
) (*baremetalv1.Operation, error) {
	asked := &baremetalv1.TestHardware{Tests: r.GetTests(), DurationSeconds: r.GetDurationSeconds(),
		MemoryPercent: r.GetMemoryPercent(), DiskBytes: r.GetDiskBytes()}
	if err := kind.ValidateTest(asked, service.Plain); err != nil {
		return nil, err
	}
	p := service.Set(validate.TestParams(asked), validate.ParamTimeout, service.Seconds(r.GetTimeoutSeconds()))
	return s.Begin(ctx, service.Work{
		ValidateOnly: r.GetValidateOnly(),
		MachineID:    r.GetMachineId(), RequestID: r.GetRequestId(), Kind: fleet.TestHardware, Params: p, Path: service.Plain,
	})
}

// ReimageMachine has the operation of a reimage created; it implements MachineService.
func (s *Server) ReimageMachine(
	ctx context.Context, r *baremetalv1.ReimageMachineRequest,
) (*baremetalv1.Operation, error) {
	p := service.Set(nil, validate.ParamImage, r.GetImageRef())
	p = service.Set(p, validate.ParamPath, r.GetPath())
	p = service.Set(p, validate.ParamTimeout, service.Seconds(r.GetTimeoutSeconds()))
	if r.GetAgentless() {
		p = service.Set(p, validate.ParamAgentless, "true")
	}
	if err := validate.PhonesHome("seed", r.GetSeed(), p); err != nil {
		return nil, err
	}
	seed, err := s.KeepSeed(ctx, "seed", r.GetSeed(), r.GetValidateOnly())
	if err != nil {
		return nil, err
	}
	return s.Begin(ctx, service.Work{
		ValidateOnly: r.GetValidateOnly(),
		MachineID:    r.GetMachineId(), RequestID: r.GetRequestId(), Kind: fleet.Reimage, PlanID: r.GetPlanId(), Params: p,
		Path: service.Plain, Seed: seed,
	})
}

// ReconfigureMachine implements MachineService.
func (s *Server) ReconfigureMachine(
	ctx context.Context, r *baremetalv1.ReconfigureMachineRequest,
) (*baremetalv1.Operation, error) {
	p := service.Set(nil, validate.ParamTimeout, service.Seconds(r.GetTimeoutSeconds()))
	if r.GetConfig() != nil {
		// Checked before it is written down, so that a fault is named by its own field.
		err := service.FirstError(validate.RequestID(r.GetRequestId()), validate.NetReconfig("config", r.GetConfig()))
		if err != nil {
			return nil, err
		}
		config, err := validate.ConfigParam(r.GetConfig())
		if err != nil {
			return nil, err
		}
		p = service.Set(p, validate.ParamConfig, config)
	}
	return s.Begin(ctx, service.Work{
		ValidateOnly: r.GetValidateOnly(),
		MachineID:    r.GetMachineId(), RequestID: r.GetRequestId(), Kind: fleet.Reconfigure, Params: p, Path: service.Plain,
	})
}

// EnterMaintenance implements MachineService.
func (s *Server) EnterMaintenance(
	ctx context.Context, r *baremetalv1.EnterMaintenanceRequest,
) (*baremetalv1.Operation, error) {
	return s.Begin(ctx, service.Work{
		ValidateOnly: r.GetValidateOnly(),
		MachineID:    r.GetMachineId(), RequestID: r.GetRequestId(), Kind: fleet.EnterMaintenance, Comment: r.GetComment(),
		Path: service.Plain,
	})
}

// ExitMaintenance implements MachineService.
func (s *Server) ExitMaintenance(
	ctx context.Context, r *baremetalv1.ExitMaintenanceRequest,
) (*baremetalv1.Operation, error) {
	return s.Begin(ctx, service.Work{
		ValidateOnly: r.GetValidateOnly(),
		MachineID:    r.GetMachineId(), RequestID: r.GetRequestId(), Kind: fleet.ExitMaintenance, Comment: r.GetComment(),
		Path: service.Plain,
	})
}

// CancelOperation implements MachineService.
func (s *Server) CancelOperation(
	ctx context.Context, r *baremetalv1.CancelOperationRequest,
) (*baremetalv1.Operation, error) {
	if err := validate.Key("operation_id", r.GetOperationId()); err != nil {
		return nil, err
	}
	return s.Engine.Cancel(ctx, r.GetOperationId(), service.Actor(ctx))
}
