package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

const (
	// callLimit is how long a client waits for an answer. An answer that comes later is lost.
	callLimit = 3 * time.Second
	// tryLimit is how long an attempt of a step may take, in seconds.
	tryLimit = 15
	// maxTries is how often a client asks for the same request again.
	maxTries = 30
	// followLimit is how long a client follows its operation before it goes on.
	followLimit = 8 * time.Second
)

// apiClient is one of the clients that work at the same time.
type apiClient struct {
	f        *fleet
	n        int
	rng      *rand.Rand
	requests int
}

func newClient(f *fleet, n int) *apiClient {
	return &apiClient{f: f, n: n, rng: rand.New(rand.NewPCG(f.o.seed, uint64(n)))}
}

// work starts operations, asks for them again, follows and cancels them, until ctx ends.
func (c *apiClient) work(ctx context.Context) {
	for ctx.Err() == nil {
		machine := c.machine()
		kind := c.kind(machine)
		c.requests++
		request := fmt.Sprintf("c%02d-%04d", c.n, c.requests)
		id := c.start(ctx, machine, kind, request)
		if id == "" {
			c.pause(ctx, 500)
			continue
		}
		switch n := c.rng.IntN(100); {
		case n < 35:
			c.poll(ctx, machine, id)
		case n < 60:
			c.watch(ctx, id)
		case n < 72:
			c.pause(ctx, 300)
			c.cancel(ctx, machine, id)
		case n < 90:
			c.pause(ctx, 2000)
			c.start(ctx, machine, kind, request)
		}
		c.pause(ctx, 800)
	}
}

func (c *apiClient) pause(ctx context.Context, milliseconds int) {
	program.Rest(ctx, time.Duration(c.rng.IntN(milliseconds))*time.Millisecond)
}

// machine draws mostly one of the client's own, and else any, so that clients meet.
func (c *apiClient) machine() string {
	all := c.f.machines
	switch n := c.rng.IntN(100); {
	case n < 25:
		return c.f.hosts[c.rng.IntN(len(c.f.hosts))].machine
	case n < 75:
		each := max(1, len(all)/c.f.o.clients)
		return all[(c.n*each+c.rng.IntN(each))%len(all)]
	}
	return all[c.rng.IntN(len(all))]
}

// The kinds of operations that clients start.
const (
	reboot      = "reboot"
	force       = "reboot-force"
	throughBMC  = "reboot-bmc"
	netboot     = "netboot"
	reimage     = "reimage"
	reconfigure = "reconfigure"
	enter       = "enter-maintenance"
	leave       = "exit-maintenance"
	powerOff    = "power-off"
	powerOn     = "power-on"
)

// onHosts and onSite are the kinds that are drawn for machines with and without an agent of their own.
var (
	onHosts = []string{reboot, reboot, reboot, force, reimage, reimage, netboot, reconfigure, enter, enter, leave}
	onSite  = []string{reboot, reboot, reboot, force, throughBMC, reimage, reimage, reimage, netboot, reconfigure, enter,
		enter, leave, leave, powerOff, powerOn, powerOn}
)

func (c *apiClient) kind(machine string) string {
	kinds := onSite
	if machine[0] == 'h' {
		kinds = onHosts
	}
	return kinds[c.rng.IntN(len(kinds))]
}

// start asks for an operation, with the same request id until there is an answer. It returns the operation's id, or ""
// when it was refused or no answer came in time.
func (c *apiClient) start(ctx context.Context, machine, kind, request string) string {
	for range maxTries {
		if ctx.Err() != nil {
			return ""
		}
		x := check.Call{Client: c.n, Method: check.Start, Kind: kind, Machine: machine, Request: request}
		c.call(ctx, &x, func(ctx context.Context, p *controllerProgram) (*baremetalv1.Operation, error) {
			return begin(ctx, p, kind, machine, request, tryLimit)
		})
		switch x.Outcome {
		case check.OK:
			return x.Operation
		case check.Refused:
			return ""
		}
		c.pause(ctx, 400)
	}
	return ""
}

// call makes a call to either controller, and records its outcome.
func (c *apiClient) call(
	ctx context.Context, x *check.Call,
	do func(context.Context, *controllerProgram) (*baremetalv1.Operation, error),
) {
	// The clients stop in the end; the answers of calls that were made before still count.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	x.Begin = c.f.since()
	o, err := do(ctx, c.f.controllers[c.rng.IntN(len(c.f.controllers))])
	x.End, x.Outcome = c.f.since(), outcome(err)
	if err != nil {
		x.Reason, x.Error = failure.From(err).Reason, err.Error()
	} else {
		x.Operation, x.Phase = o.GetOperationId(), o.GetPhase().String()
	}
	c.f.called(*x)
}

// outcome reports a call as refused only where its error proves that it had no effect.
func outcome(err error) check.Outcome {
	switch status.Code(err) {
	case codes.OK:
		return check.OK
	case codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied:
		return check.Refused
	}
	return check.Unknown
}

func (c *apiClient) cancel(ctx context.Context, machine, id string) {
	x := check.Call{Client: c.n, Method: check.Cancel, Machine: machine, Operation: id}
	c.call(ctx, &x, func(ctx context.Context, p *controllerProgram) (*baremetalv1.Operation, error) {
		return p.machines().CancelOperation(ctx, &baremetalv1.CancelOperationRequest{OperationId: id})
	})
}

// poll reads the operation until it has ended.
func (c *apiClient) poll(ctx context.Context, machine, id string) {
	ctx, cancel := context.WithTimeout(ctx, followLimit)
	defer cancel()
	for ctx.Err() == nil {
		x := check.Call{Client: c.n, Method: check.Get, Machine: machine, Operation: id}
		c.call(ctx, &x, func(ctx context.Context, p *controllerProgram) (*baremetalv1.Operation, error) {
			return p.operations().GetOperation(ctx, &baremetalv1.GetOperationRequest{OperationId: id})
		})
		if x.Outcome == check.OK && ended(x.Phase) {
			return
		}
		program.Rest(ctx, time.Second)
	}
}

func ended(phase string) bool {
	return baremetalv1.Operation_Phase_value[phase] >= int32(baremetalv1.Operation_SUCCEEDED)
}

// watch follows the events of the operation until it has ended. A broken stream goes on at its cursor.
func (c *apiClient) watch(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, followLimit)
	defer cancel()
	for cursor := ""; ctx.Err() == nil; program.Rest(ctx, again) {
		p := c.f.controllers[c.rng.IntN(len(c.f.controllers))]
		stream, err := p.operations().WatchOperations(ctx,
			&baremetalv1.WatchOperationsRequest{Filter: "operation_id=" + id, Cursor: cursor})
		for err == nil {
			var e *baremetalv1.OperationEvent
			if e, err = stream.Recv(); err == nil {
				cursor = e.GetCursor()
				if check.Ended(e.GetSnapshot()) {
					return
				}
			}
		}
	}
}

// begin makes the call that starts an operation of a kind, whose attempts may take limit seconds.
func begin(
	ctx context.Context, p *controllerProgram, kind, machine, request string, limit int32,
) (*baremetalv1.Operation, error) {
	switch kind {
	case reimage:
		return p.machines().ReimageMachine(ctx, &baremetalv1.ReimageMachineRequest{
			MachineId: machine, RequestId: request, ImageRef: "ubuntu-2204", TimeoutSeconds: limit})
	case netboot:
		return p.machines().NetbootMachine(ctx, &baremetalv1.NetbootMachineRequest{
			MachineId: machine, RequestId: request, Mode: "PXE", Reboot: true, TimeoutSeconds: limit})
	case reconfigure:
		return p.machines().ReconfigureMachine(ctx, &baremetalv1.ReconfigureMachineRequest{
			MachineId: machine, RequestId: request, Config: &baremetalv1.NetReconfig{Hostname: request},
			TimeoutSeconds: limit})
	case enter:
		return p.machines().EnterMaintenance(ctx, &baremetalv1.EnterMaintenanceRequest{
			MachineId: machine, RequestId: request})
	case leave:
		return p.machines().ExitMaintenance(ctx, &baremetalv1.ExitMaintenanceRequest{
			MachineId: machine, RequestId: request})
	case powerOff, powerOn:
		r, err := p.runs().StartRun(ctx, &baremetalv1.StartRunRequest{
			MachineId: machine, RequestId: request, PlanId: kind})
		// The run is the operation behind it, by the same id.
		return &baremetalv1.Operation{OperationId: r.GetRunId()}, err
	}
	mode := map[string]string{reboot: "graceful", force: "force", throughBMC: "bmc"}[kind]
	return p.machines().RebootMachine(ctx, &baremetalv1.RebootMachineRequest{
		MachineId: machine, RequestId: request, Mode: mode, TimeoutSeconds: limit})
}
