// Package testhardware tests the machine's hardware. It is done when every part was tested or skipped, and fails where
// one does; the evidence names what was found of each. Nothing is changed, so that a test may be made again.
package testhardware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/hwtest"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Declaration of the action: its load slows down whatever runs there.
var Declaration = executor.Declaration{Action: "test_hardware", Harm: executor.Interrupts}

// Machine is one whose hardware can be tested; *host.Linux is one.
type Machine interface {
	Identity(ctx context.Context) (host.Identity, error)
	TestHardware(ctx context.Context, cfg hwtest.Config) (hwtest.Report, error)
}

// Executor is the executor of TestHardwareAction.
type Executor struct{ machine Machine }

var _ executor.Executor = (*Executor)(nil)

// New makes the executor for the machine that it runs on.
func New(m Machine) *Executor { return &Executor{machine: m} }

type intent struct {
	// BootID is the boot in which the test began: a machine that is in another one afterwards did not stand it, or was
	// restarted by someone.
	BootID string `json:"boot_id"`
}

// Prepare notes the boot.
func (e *Executor) Prepare(ctx context.Context, _ *fleetv1.CommandSpec) (any, *executor.Result, error) {
	who, err := e.machine.Identity(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the boot id: %w", err)
	}
	return intent{BootID: who.BootID}, nil, nil
}

// Execute tests for the time that was asked for. A cancel ends it at once.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	a := job.Spec.GetTestHardware()
	found, err := e.machine.TestHardware(ctx, hwtest.Config{
		Tests: a.GetTests(), For: time.Duration(a.GetDurationMs()) * time.Millisecond,
		Share: float64(a.GetMemoryPercent()) / 100, DiskBytes: a.GetDiskBytes(), Progress: job.Progress,
	})
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, executor.ErrCanceled):
		return executor.Canceled("stopped while the hardware was tested; nothing was changed"), nil
	case errors.Is(cause, executor.ErrTimeout):
		return executor.Failed(baremetalv1.Reason_STEP_TIMEOUT, "the time was up before the tests had ended").AndRetry(), nil
	case cause != nil:
		return executor.Result{}, executor.ErrInterrupted
	case err != nil:
		return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "the hardware could not be tested: %v", err).
				AndRetry(),
			nil
	}
	for _, r := range found.Results {
		job.Logf("%s", line(r))
	}
	proof, err := json.Marshal(found.Results)
	if err != nil {
		return executor.Result{}, fmt.Errorf("encode results: %w", err)
	}
	seen := map[string]string{evidence.HardwareTests: string(proof), evidence.HardwareModel: found.Model}
	if faults := hwtest.Faults(found.Results); faults != "" {
		return executor.Failed(baremetalv1.Reason_HARDWARE_TEST_FAILED, "%s", faults).WithEvidence(seen), nil
	}
	return executor.Succeeded(seen), nil
}

// line is a result in the operation's log.
func line(r hwtest.Result) string {
	text := r.Verdict + " " + r.Test
	if r.Part != "" {
		text += " " + r.Part
	}
	if r.Unit != "" {
		text += fmt.Sprintf(" %.4g %s", r.Figure, r.Unit)
	}
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	return text
}

// Resume has no results. A restart of the agent is no sign of bad hardware; one of the machine may be.
func (e *Executor) Resume(ctx context.Context, job executor.Job) (executor.Verdict, error) {
	var before intent
	if err := job.DecodeIntent(&before); err != nil {
		return executor.Verdict{}, err
	}
	now, err := e.machine.Identity(ctx)
	if err != nil {
		return executor.Verdict{}, fmt.Errorf("read the boot id: %w", err)
	}
	if now.BootID != before.BootID {
		return executor.Settle(executor.Failed(baremetalv1.Reason_HARDWARE_TEST_UNFINISHED,
			"the machine was restarted while its hardware was tested: it did not stand the load, or was told to restart")), nil
	}
	return executor.Settle(executor.Failed(baremetalv1.Reason_HARDWARE_TEST_UNFINISHED,
		"the agent was restarted while the hardware was tested; nothing was changed").AndRetry()), nil
}
