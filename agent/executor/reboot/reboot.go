// Package reboot executes a reboot, of the own machine or of one behind a provider. It is done when the machine
// shows another boot id, and not before.
//
// A machine that can only be reached through its BMC shows none. There a reboot is a power cycle, see package power: it
// is done when the machine was seen off and then on, and proves no more than that. Whether a system came up is proved
// by its own agent.
package reboot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/power"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Declaration of the action.
var Declaration = executor.Declaration{Action: "reboot", Harm: executor.Interrupts}

// Config is what the executor needs.
type Config struct {
	Host  host.Host
	Clock clock.Clock
	// Settle is how long an unchanged boot id leaves the outcome open, after an error or a restart of the agent. Then it
	// becomes unknown. 0 means DefaultSettle.
	Settle time.Duration
	// Poll is how often the boot id is read; 0 means 250 ms.
	Poll time.Duration
	// Probe waits until the system of a machine without an agent answers on the network, and returns the answer as
	// evidence. Only a site agent has it.
	Probe func(ctx context.Context, t *fleetv1.ProbeTarget) (map[string]string, error)
}

// DefaultSettle is more than systemd's default time for stopping a unit, 90 s (systemd-system.conf(5)).
const DefaultSettle = 2 * time.Minute

// Executor is the reboot executor.
type Executor struct{ cfg Config }

var _ executor.Executor = (*Executor)(nil)

// New makes the executor.
func New(cfg Config) *Executor {
	if cfg.Settle == 0 {
		cfg.Settle = DefaultSettle
	}
	if cfg.Poll == 0 {
		cfg.Poll = 250 * time.Millisecond
	}
	return &Executor{cfg: cfg}
}

type intent struct {
	BootIDBefore string          `json:"boot_id_before"`
	Mode         boot.RebootMode `json:"mode"`
	// Power is set for a machine whose system cannot be read.
	Power *power.Intent `json:"power,omitempty"`
}

// switchable returns the machine if it is rebooted by its power: its provider sees nothing else of it, or the mode
// demands it.
func (e *Executor) switchable(mode string) (provider.Machine, bool) {
	m, ok := provider.MachineOf(e.cfg.Host)
	return m, ok && (m.Blind || mode == "bmc")
}

// byPower returns the intent of a power cycle: graceful asks the system first, and cuts the power when it doesn't go.
// The boot id is empty for a machine that only shows its power.
func byPower(mode, bootID string) (any, *executor.Result, error) {
	if mode == "bmc" {
		mode = "force"
	}
	m, refused := modeOf(mode)
	if refused != nil {
		return nil, refused, nil
	}
	order := power.Order{Off: true, On: true, Gently: m == boot.RebootGraceful}
	return intent{BootIDBefore: bootID, Mode: m, Power: &power.Intent{Order: order}}, nil, nil
}

// Prepare reads the boot id that must change.
func (e *Executor) Prepare(ctx context.Context, spec *fleetv1.CommandSpec) (any, *executor.Result, error) {
	if m, ok := e.switchable(spec.GetReboot().GetMode()); ok {
		before := ""
		if !m.Blind {
			id, err := e.cfg.Host.Identity(ctx)
			if err != nil {
				return nil, nil, fmt.Errorf("read boot id: %w", err)
			}
			before = id.BootID
		}
		return byPower(spec.GetReboot().GetMode(), before)
	}
	mode, refused := modeOf(spec.GetReboot().GetMode())
	if refused != nil {
		return nil, refused, nil
	}
	id, err := e.cfg.Host.Identity(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read boot id: %w", err)
	}
	return intent{BootIDBefore: id.BootID, Mode: mode}, nil, nil
}

func modeOf(mode string) (boot.RebootMode, *executor.Result) {
	switch mode {
	case "", "graceful":
		return boot.RebootGraceful, nil
	case "force":
		return boot.RebootForced, nil
	case "bmc":
		r := executor.Refused(baremetalv1.Reason_CAPABILITY_MISSING, "this agent has no way to the machine's BMC")
		return "", &r
	}
	r := executor.Refused(baremetalv1.Reason_INVALID_FIELD, "reboot in mode %q", mode)
	return "", &r
}

// Execute asks for the reboot once and then waits for another boot id. On the machine's own agent it ends by
// being killed.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Result{}, err
	}
	if errors.Is(context.Cause(ctx), executor.ErrCanceled) {
		return executor.Canceled("canceled before the reboot was asked for"), nil
	}
	if m, ok := e.switchable(job.Spec.GetReboot().GetMode()); ok && in.Power != nil {
		r, err := power.Run(ctx, job, m, *in.Power, func(p power.Intent) any {
			return intent{BootIDBefore: in.BootIDBefore, Mode: in.Mode, Power: &p}
		})
		if err != nil {
			return r, err
		}
		return e.cycled(job, in, r)
	}
	job.Logf("rebooting (%s), boot id before: %s", in.Mode, in.BootIDBefore)
	asked := e.cfg.Host.Reboot(ctx, job.Effect(), in.Mode)
	if r, ok := executor.FromRefusal(asked, baremetalv1.Reason_CAPABILITY_MISSING); ok {
		return r, nil
	}
	if err := executor.AfterEffect.HitCtx(ctx); err != nil {
		return executor.Result{}, err
	}
	limit := time.Duration(0)
	if asked != nil {
		job.Logf("asking for the reboot failed: %v", asked)
		limit = e.cfg.Settle
	}
	// From here on a cancel comes too late: an accepted reboot cannot be taken back.
	return e.await(job.Hard, in, limit, asked)
}

// Resume never reboots. Another boot id is proof. Under the old one a reboot may still be on its way, for Settle; after
// that the outcome is unknown.
func (e *Executor) Resume(ctx context.Context, job executor.Job) (executor.Verdict, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Verdict{}, err
	}
	if m, ok := e.switchable(job.Spec.GetReboot().GetMode()); ok && in.Power != nil {
		v := power.Resume(ctx, m, *in.Power, e.cfg.Clock.Now())
		if v.Settled == nil {
			return v, nil
		}
		r, err := e.cycled(job, in, *v.Settled)
		if err != nil {
			return executor.Verdict{}, err
		}
		return executor.Settle(r), nil
	}
	r, err := e.await(job.Hard, in, e.cfg.Settle, nil)
	if err != nil {
		return executor.Verdict{}, err
	}
	return executor.Settle(r), nil
}

// cycled waits for the system of a machine that was switched off and on: for another boot id where one can be read, and
// for its answer on the network where the command asks for that.
func (e *Executor) cycled(job executor.Job, in intent, r executor.Result) (executor.Result, error) {
	if r.Outcome != fleetv1.CommandResult_SUCCEEDED || in.BootIDBefore == "" {
		return e.probed(job, r)
	}
	booted, err := e.await(job.Hard, in, e.cfg.Settle, nil)
	if err != nil {
		return executor.Result{}, err
	}
	maps.Copy(r.Evidence, booted.Evidence)
	if booted.Outcome != fleetv1.CommandResult_SUCCEEDED {
		return booted.WithEvidence(r.Evidence), nil
	}
	return e.probed(job, r)
}

// probed waits for the answer of a machine without an agent, once it was seen on. A result without it is a power cycle
// that was read back, and no more.
func (e *Executor) probed(job executor.Job, r executor.Result) (executor.Result, error) {
	target := job.Spec.GetReboot().GetProbe()
	if target == nil || e.cfg.Probe == nil || r.Outcome != fleetv1.CommandResult_SUCCEEDED {
		return r, nil
	}
	job.Logf("it is on; waiting until its system answers on the network")
	answer, err := e.cfg.Probe(job.Hard, target)
	switch {
	case err == nil:
		maps.Copy(r.Evidence, answer)
		return r, nil
	case executor.Interrupted(job.Hard):
		return executor.Result{}, executor.ErrInterrupted
	}
	return executor.Failed(baremetalv1.Reason_EVIDENCE_MISSING,
		"the machine was switched off and on, and its system has not answered on the network in time").
		WithEvidence(r.Evidence), nil
}

// await reads the boot id until it has changed, until the machine has answered with the old one for limit (0:
// no such limit), or until ctx ends.
func (e *Executor) await(ctx context.Context, in intent, limit time.Duration, asked error) (executor.Result, error) {
	var unchangedSince time.Time
	for {
		id, err := e.cfg.Host.Identity(ctx)
		now := e.cfg.Clock.Now()
		switch {
		case err == nil && id.BootID != in.BootIDBefore:
			return executor.Succeeded(map[string]string{
				evidence.BootIDBefore: in.BootIDBefore, evidence.BootIDAfter: id.BootID,
			}), nil
		case err != nil:
			unchangedSince = time.Time{} // down, or on its way up
		case unchangedSince.IsZero():
			unchangedSince = now
		}
		if limit > 0 && !unchangedSince.IsZero() && now.Sub(unchangedSince) >= limit {
			return unknown(in, fmt.Sprintf("the boot id has not changed for %s", limit), asked), nil
		}
		select {
		case <-ctx.Done():
			if executor.Interrupted(ctx) {
				return executor.Result{}, executor.ErrInterrupted
			}
			return unknown(in, "no other boot id in time", asked), nil
		case <-e.cfg.Clock.After(e.cfg.Poll):
		}
	}
}

func unknown(in intent, what string, asked error) executor.Result {
	r := executor.Unknown("%s; a reboot may still come", what)
	if asked != nil {
		r = executor.Unknown("%s, and asking for it had failed: %v", what, asked)
	}
	return r.WithEvidence(map[string]string{evidence.BootIDBefore: in.BootIDBefore})
}
