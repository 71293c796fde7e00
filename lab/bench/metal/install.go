package metal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/imagebuild"
	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

const aboutInstall = "A Debian image onto an emulated machine that is off, to the new system's session, in turns through " +
	"the API and by hand (power on, netboot, `zstd -dc`, `dd`, reboot, login prompt). By hand reads nothing back."

// imageRef is the image's name in the catalogue.
const imageRef = "measured"

// Install measures how long a machine takes from powered off with an empty disk to its new system, twice on this host:
// ordered through the API, and by hand with dnsmasq, a web server and the pipe of package guest. Machine, firmware,
// kernel and image are the same. By hand nothing is decided, checked, read back or enrolled; what those cost is the
// difference. A host that becomes slower does so for both.
//
// It needs root, QEMU, dnsmasq, busybox, zstd and coreutils, and ingot-controller, ingot-agent and ingot-image built.
func Install(f *flag.FlagSet, cfg *rig.Config) func(context.Context, *report.Report) error {
	image := f.String("image", "dist/debian.raw.zst", "the image, compressed by zstd; as `ingot-image debian` makes it")
	f.StringVar(&cfg.Bin, "bin", "bin", "directory of ingot-controller, ingot-agent and ingot-image")
	firmwares := f.String("firmware", "bios,uefi", "which machines, one after another")
	runs := f.Int("runs", 1, "how often each is installed each way")
	return func(ctx context.Context, r *report.Report) (err error) {
		run := r.Run("install", "Installing", aboutInstall)
		dir, err := os.MkdirTemp("/tmp", "bi-") // short, for the sake of Unix sockets in it
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		path, err := filepath.Abs(*image)
		if err := errors.Join(err, os.Chmod(dir, 0o755)); err != nil {
			return err
		}
		if err := prepareByHand(ctx, path, dir); err != nil {
			return fmt.Errorf("prepare the install by hand: %w", err)
		}
		for firmware := range strings.SplitSeq(*firmwares, ",") {
			if err := both(ctx, run, cfg.Bin, path, dir, vm.Firmware(firmware), *runs); err != nil {
				return fmt.Errorf("%s: %w", firmware, err)
			}
		}
		return nil
	}
}

// installed is one install with its stages.
type installed struct {
	seconds float64
	stages  []metal.Stage
}

// String returns the stages in seconds.
func (i installed) String() string {
	var text []string
	for _, s := range i.stages {
		text = append(text, fmt.Sprintf("%s %.1f", s.Name, s.Took.Seconds()))
	}
	return strings.Join(text, ", ") + " s"
}

// both installs each way so many times, in turns, and adds the medians with the stages of the last.
func both(ctx context.Context, run *report.Run, bin, image, dir string, firmware vm.Firmware, runs int) error {
	var hand, api []installed
	for i := range runs {
		began, stages, err := byHand(ctx, dir, firmware)
		if err != nil {
			return fmt.Errorf("by hand: %w", err)
		}
		hand = append(hand, installed{stages[len(stages)-1].Ended.Sub(began).Seconds(), stages})
		rig.Say("%s by hand: %.1f s: %s", firmware, hand[i].seconds, hand[i])
		op, stages, err := byIngot(ctx, bin, image, filepath.Join(dir, fmt.Sprintf("lab%d", i)), firmware)
		if err != nil {
			return fmt.Errorf("through the API: %w", err)
		}
		took := op.GetFinishedAt().AsTime().Sub(op.GetCreatedAt().AsTime())
		api = append(api, installed{took.Seconds(), stages})
		rig.Say("%s through the API: %.1f s: %s", firmware, api[i].seconds, api[i])
	}
	seconds := func(i installed) float64 { return i.seconds }
	h, a := median(hand, seconds), median(api, seconds)
	run.Add(
		string(firmware)+", through the API",
		a,
		"s",
		nil,
		"%.2f times that by hand, median of %d; %s",
		a/h,
		runs,
		api[runs-1],
	)
	run.Add(string(firmware)+", by hand", h, "s", nil, "%s", hand[runs-1])
	return nil
}

// byIngot installs one machine through the API and returns when each part was over. Its laboratory is new, as the
// machine.
func byIngot(
	ctx context.Context, bin, image, dir string, firmware vm.Firmware,
) (op *pb.Operation, stages []metal.Stage, err error) {
	programs, err := filepath.Abs(bin)
	if err != nil {
		return nil, nil, err
	}
	cache, err := imagebuild.DefaultCacheDir()
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
	machine := metal.MachineConfig{Name: "metal-1", Firmware: firmware, BMC: metal.IPMI}
	if err := lab.AddImages(ctx, files); err != nil {
		return nil, nil, err
	}
	if err := lab.Client().Upload(ctx, image, &pb.Image{ImageRef: imageRef, Format: "raw.zst"}); err != nil {
		return nil, nil, err
	}
	if _, err := lab.AddMachine(ctx, machine); err != nil {
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
	for op.GetFinishedAt() == nil {
		if err := rig.Pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
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
