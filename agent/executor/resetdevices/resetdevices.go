// Package resetdevices resets a machine's accelerators, so that their memory holds nothing of the last tenant. It is
// done when each device answers again; the evidence names the devices and how the kernel resets them.
package resetdevices

import (
	"context"
	"errors"
	"fmt"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Declaration of the action.
var Declaration = executor.Declaration{Action: "reset_devices", Harm: executor.Destroys}

// Machine is one whose accelerators can be reset; *host.Linux is one.
type Machine interface {
	Accelerators() ([]host.Accelerator, error)
	ResetDevice(ctx context.Context, e effect.Cause, d host.Accelerator) (methods string, err error)
}

// Executor is the executor of ResetDevicesAction.
type Executor struct{ machine Machine }

var _ executor.Executor = (*Executor)(nil)

// New makes the executor for the machine that it runs on.
func New(m Machine) *Executor { return &Executor{machine: m} }

type intent struct {
	Devices []host.Accelerator `json:"devices"`
}

// Prepare lists the devices.
func (e *Executor) Prepare(context.Context, *fleetv1.CommandSpec) (any, *executor.Result, error) {
	all, err := e.machine.Accelerators()
	if err != nil {
		return nil, nil, fmt.Errorf("look for accelerators: %w", err)
	}
	return intent{Devices: all}, nil, nil
}

// Execute resets one device after the other. A cancel stops between devices.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Result{}, err
	}
	if r, err := job.MayDestroy(ctx); r != nil || err != nil {
		return executor.Stopped(ctx, r, err)
	}
	var done []string
	proof := map[string]string{}
	for i, d := range in.Devices {
		if ctx.Err() != nil {
			return interrupted(ctx, done)
		}
		methods, err := e.machine.ResetDevice(ctx, job.Effect(), d)
		if hit := executor.AfterEffect.HitCtx(ctx); hit != nil {
			return executor.Result{}, hit
		}
		if err != nil {
			r := executor.Failed(baremetalv1.Reason_DEVICE_RESET_FAILED,
				"accelerator %s (%s:%s): %v; its memory may hold what was in it",
				d.Address, d.Vendor, d.Device, err)
			if !errors.Is(err, host.ErrNoReset) {
				r = r.AndRetry()
			}
			proof["devices_reset_before"] = strings.Join(done, ",")
			return r.WithEvidence(proof), nil
		}
		job.Logf("reset accelerator %s (%s)", d.Address, methods)
		job.Progress((i+1)*100/len(in.Devices), d.Address)
		proof[fmt.Sprintf("device_%d", i)] = fmt.Sprintf("%s %s:%s reset (%s), and answers", d.Address, d.Vendor, d.Device,
			methods)
		done = append(done, d.Address)
	}
	proof[evidence.DevicesReset] = "none: the machine has no accelerator"
	if len(done) > 0 {
		proof[evidence.DevicesReset] = strings.Join(done, ",")
	}
	return executor.Succeeded(proof), nil
}

func interrupted(ctx context.Context, done []string) (executor.Result, error) {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, executor.ErrCanceled):
		return executor.Canceled("stopped after %d devices", len(done)), nil
	case errors.Is(cause, executor.ErrTimeout):
		return executor.Failed(baremetalv1.Reason_STEP_TIMEOUT, "the time was up after %d devices", len(done)).AndRetry(), nil
	}
	return executor.Result{}, executor.ErrInterrupted
}

// Resume knows of nothing that was reset before a restart: another attempt resets again, which does no harm.
func (e *Executor) Resume(context.Context, executor.Job) (executor.Verdict, error) {
	return executor.Settle(executor.Failed(baremetalv1.Reason_EXECUTION_FAILED,
		"the agent was restarted during the reset of accelerators").AndRetry()), nil
}
