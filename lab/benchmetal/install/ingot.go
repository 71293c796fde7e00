package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/debian"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// imageRef is the image's name in the catalogue.
const imageRef = "measured"

// byIngot installs one machine through the API and says when each part was over. Its laboratory is new, as the machine.
func byIngot(
	ctx context.Context, o options, dir string, firmware vm.Firmware,
) (op *pb.Operation, stages []metal.Stage, err error) {
	programs, err := filepath.Abs(o.programs)
	if err != nil {
		return nil, nil, err
	}
	cache, err := debian.DefaultCacheDir()
	if err != nil {
		return nil, nil, err
	}
	agent := filepath.Join(programs, "ingot-agent")
	files, err := metal.BuildImages(ctx, filepath.Join(programs, "ingot-image"), agent, cache)
	if err != nil {
		return nil, nil, fmt.Errorf("build installer: %w", err)
	}
	lab, err := metal.Up(ctx, metal.Config{
		Dir: dir, Controller: filepath.Join(programs, "ingot-controller"), Agent: agent, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, lab.Close(), os.RemoveAll(dir)) }()
	if err := lab.AddImages(ctx, files); err != nil {
		return nil, nil, err
	}
	if err := lab.Client().Upload(ctx, o.image, &pb.Image{ImageRef: imageRef, Format: "raw.zst"}); err != nil {
		return nil, nil, err
	}
	if _, err := lab.AddMachine(ctx, metal.MachineConfig{Name: "metal-1", Firmware: firmware,
		BMC: metal.IPMI}); err != nil {
		return nil, nil, err
	}
	if op, err = reimage(ctx, lab.Client()); err != nil {
		return nil, nil, err
	}
	stages, err = lab.Stages(ctx, op)
	return op, stages, err
}

func reimage(ctx context.Context, c *metal.Client) (*pb.Operation, error) {
	op, err := c.Machines.EnterMaintenance(ctx, &pb.EnterMaintenanceRequest{MachineId: "metal-1", RequestId: "maintain"})
	if err != nil {
		return nil, err
	}
	if _, err := await(ctx, c, op); err != nil {
		return nil, err
	}
	op, err = c.Machines.ReimageMachine(ctx, &pb.ReimageMachineRequest{MachineId: "metal-1", RequestId: "install",
		ImageRef: imageRef})
	if err != nil {
		return nil, err
	}
	return await(ctx, c, op)
}

// await waits until the operation has succeeded.
func await(ctx context.Context, c *metal.Client, op *pb.Operation) (*pb.Operation, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for op.GetFinishedAt() == nil {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
		now, err := c.Operations.GetOperation(ctx, &pb.GetOperationRequest{OperationId: op.GetOperationId()})
		if err != nil {
			return nil, err
		}
		op = now
	}
	if op.GetPhase() != pb.Operation_SUCCEEDED {
		return nil, fmt.Errorf("%s ended %s: %v", op.GetType(), op.GetPhase(), op.GetError())
	}
	return op, nil
}
