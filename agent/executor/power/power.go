// Package power switches a machine from outside, through its BMC: on, off, or off and on again, with the device of its
// next boot. It is done when the BMC reports the state, and its report is the evidence. Whether a system came up is not
// known here.
package power

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/clock"
)

// Declaration of the action.
var Declaration = executor.Declaration{Action: "power", Harm: executor.Interrupts}

// Executor is the power executor.
type Executor struct {
	host   host.Host
	clock  clock.Clock
	insert Insert
}

// Insert has the BMC of a machine attach the image of its assignment, and returns when it was read back. It may be
// called again.
type Insert func(ctx context.Context, t provider.Target, e effect.Cause) (provider.MediaProof, error)

// WithMedia makes an executor that can start a machine from an attached image; nil: it refuses.
func (e *Executor) WithMedia(insert Insert) *Executor {
	with := *e
	with.insert = insert
	return &with
}

var _ executor.Executor = (*Executor)(nil)

// New makes the executor for one machine.
func New(h host.Host, c clock.Clock) *Executor { return &Executor{host: h, clock: c} }

// Prepare has nothing to read: each step reads before it acts.
func (e *Executor) Prepare(_ context.Context, spec *fleetv1.CommandSpec) (any, *executor.Result, error) {
	order, refused := orderOf(spec.GetPower())
	if _, ok := provider.MachineOf(e.host); !ok && refused == nil {
		r := executor.Refused(baremetalv1.Reason_CAPABILITY_MISSING, "no agent here can switch this machine from outside")
		refused = &r
	}
	if refused == nil && order.BootOnce == provider.BootMedia && e.insert == nil {
		r := executor.Refused(baremetalv1.Reason_CAPABILITY_MISSING, "no agent here can attach an image to this machine")
		refused = &r
	}
	if refused != nil {
		return nil, refused, nil
	}
	return Intent{Order: order}, nil, nil
}

var devices = map[string]provider.BootDevice{
	"": provider.BootDefault, "PXE": provider.BootPXE, "HTTP": provider.BootHTTP, "DISK": provider.BootDisk,
	"MEDIA": provider.BootMedia,
}

func orderOf(a *fleetv1.PowerAction) (Order, *executor.Result) {
	device, ok := devices[a.GetBootOnce()]
	if !ok {
		r := executor.Refused(baremetalv1.Reason_INVALID_FIELD, "boot from %q", a.GetBootOnce())
		return Order{}, &r
	}
	o := Order{Gently: !a.GetForce(), BootOnce: device}
	switch a.GetWant() {
	case "on":
		o.On = true
	case "off":
		o.Off = true
	case "cycle":
		o.Off, o.On = true, true
	default:
		r := executor.Refused(baremetalv1.Reason_INVALID_FIELD, "power %q", a.GetWant())
		return Order{}, &r
	}
	return o, nil
}

// Execute goes on from the point that the intent records.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	var in Intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Result{}, err
	}
	m, _ := provider.MachineOf(e.host) // Prepare has seen it
	return run{job: job, m: m, in: in, as: func(in Intent) any { return in }, insert: e.insert}.run(ctx)
}

// Resume reads the power. Everything that is left to do may be done again.
func (e *Executor) Resume(ctx context.Context, job executor.Job) (executor.Verdict, error) {
	var in Intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Verdict{}, err
	}
	m, ok := provider.MachineOf(e.host)
	if !ok {
		return executor.Verdict{}, provider.ErrSilent
	}
	return Resume(ctx, m, in, e.clock.Now()), nil
}
