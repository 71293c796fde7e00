package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/ids"
)

// errDown: the machine went down under its agent.
var errDown = errors.New("the machine went down")

// machine is the world behind one agent.
type machine struct {
	name   string
	script Script

	mu       sync.Mutex
	bootID   string
	bootNext string
	image    string
	// last is the command that had an effect last.
	last    string
	effects uint64
	// down ends the present boot.
	down func()
}

func newMachine(name string, s Script) *machine {
	return &machine{name: name, script: s, bootID: ids.New(ids.State)}
}

func (m *machine) fingerprint() string {
	sum := sha256.Sum256([]byte("fleet machine " + m.name))
	return hex.EncodeToString(sum[:])
}

// boot begins a life of the agent; down is called at its end, once.
func (m *machine) boot(down func()) (bootID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = sync.OnceFunc(down)
	return m.bootID
}

func capabilities() []string { return []string{kindNetboot, kindReboot, kindRepave} }

// resolve finds the executor of a command.
func (m *machine) resolve(spec *fleetv1.CommandSpec) (executor.Executor, *executor.Result) {
	if spec.GetTargetId() != m.name {
		r := executor.Refused(baremetalv1.Reason_INVALID_FIELD, "this is %s, not %s", m.name, spec.GetTargetId())
		return nil, &r
	}
	if kind := string(executor.ActionOf(spec)); slices.Contains(capabilities(), kind) {
		return simulatedExecutor{m, kind}, nil
	}
	r := executor.Refused(baremetalv1.Reason_CAPABILITY_MISSING, "a simulated machine of the fleet cannot do this")
	return nil, &r
}

// simulatedExecutor is one kind of effect on the machine.
type simulatedExecutor struct {
	m    *machine
	kind string
}

type intent struct {
	BootID string `json:"boot_id"`
}

// Prepare implements command.Executor.
func (e simulatedExecutor) Prepare(context.Context, *fleetv1.CommandSpec) (any, *executor.Result, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	return intent{BootID: e.m.bootID}, nil, nil
}

// Execute implements command.Executor: it takes the time, and has the fault or the effect, that the script has for the
// command.
func (e simulatedExecutor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	f := e.m.script.of(e.kind, job.Spec.GetCommandId())
	if f.silent {
		<-ctx.Done()
	} else if f.time > 0 {
		wait(ctx, f.time)
	}
	switch {
	case executor.Interrupted(ctx):
		return executor.Result{}, executor.ErrInterrupted
	case errors.Is(context.Cause(ctx), executor.ErrCanceled):
		return executor.Canceled("canceled before the effect"), nil
	case ctx.Err() != nil:
		return executor.Failed(baremetalv1.Reason_STEP_TIMEOUT,
			"the machine did not answer in time; nothing was begun").AndRetry(), nil
	case f.fail:
		return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "a scripted failure of the simulated machine").AndRetry(),
			nil
	}
	r := e.m.effect(e.kind, job.Spec)
	if e.kind != kindReboot {
		return r, nil
	}
	<-job.Hard.Done() // the agent goes down with its machine
	return executor.Result{}, executor.ErrInterrupted
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-clock.Real().After(d):
	}
}

// effect happens at once.
func (m *machine) effect(kind string, spec *fleetv1.CommandSpec) executor.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = spec.GetCommandId()
	m.effects++
	switch kind {
	case kindReboot:
		m.bootID, m.bootNext = ids.New(ids.State), ""
		m.down()
	case kindNetboot:
		m.bootNext = "pxe " + spec.GetNetboot().GetMode()
	case kindRepave:
		m.image = "sha256:" + spec.GetRepave().GetSha256Raw()
	}
	return m.evidence(kind)
}

// evidence is what the machine shows after an effect.
func (m *machine) evidence(kind string) executor.Result {
	switch kind {
	case kindNetboot:
		return executor.Succeeded(map[string]string{evidence.BootNext: m.bootNext})
	case kindRepave:
		return executor.Succeeded(map[string]string{evidence.ImageDigest: m.image})
	}
	return executor.Succeeded(nil)
}

// Resume implements command.Executor. The machine remembers what was done to it last.
func (e simulatedExecutor) Resume(_ context.Context, job executor.Job) (executor.Verdict, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Verdict{}, err
	}
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	switch {
	case e.kind == kindReboot && e.m.bootID != in.BootID:
		return executor.Settle(executor.Succeeded(map[string]string{
			evidence.BootIDBefore: in.BootID, evidence.BootIDAfter: e.m.bootID,
		})), nil
	case e.m.last == job.Spec.GetCommandId():
		return executor.Settle(e.m.evidence(e.kind)), nil
	}
	return executor.GoOn(), nil
}
