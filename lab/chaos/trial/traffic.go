package trial

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

// callLimit is how long a client waits for an answer. What comes later is lost.
const callLimit = 1500 * time.Millisecond

// latest is the operation that clients of a machine heard of last.
type latest struct {
	mu sync.Mutex
	id string
}

func (l *latest) set(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id = id
}

func (l *latest) get() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}

// play runs one client's script.
func (r *attempt) play(ctx context.Context, n int, s plan.Script, last *latest) {
	for _, st := range s.Steps {
		program.Rest(ctx, st.Pause)
		if ctx.Err() != nil || r.since() > r.p.Window {
			return
		}
		c := check.Call{Client: n, Method: st.Method, Machine: r.c.machines[s.Machine].id}
		switch st.Method {
		case check.Start:
			c.Kind, c.Request = st.Kind, r.request(st.Letter)
		case check.Cancel, check.Get:
			if c.Operation = last.get(); c.Operation == "" {
				continue
			}
		}
		r.call(ctx, &c, r.c.controllers[st.Via%len(r.c.controllers)])
		if c.Method == check.Start && c.Outcome == check.OK {
			last.set(c.Operation)
		}
		r.called(c)
	}
}

func (r *attempt) request(letter string) string { return fmt.Sprintf("%d-%s", r.p.Seed, letter) }

// call makes the call and notes when, and what came of it.
func (r *attempt) call(ctx context.Context, c *check.Call, p *controllerProgram) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	c.Begin = r.since()
	var err error
	switch c.Method {
	case check.Start:
		var o *baremetalv1.Operation
		o, err = start(ctx, p, c.Kind, c.Machine, c.Request, r.limit())
		answered(c, o)
	case check.Cancel:
		var o *baremetalv1.Operation
		o, err = p.machines().CancelOperation(ctx, &baremetalv1.CancelOperationRequest{OperationId: c.Operation})
		answered(c, o)
	case check.Get:
		var o *baremetalv1.Operation
		o, err = p.operations().GetOperation(ctx, &baremetalv1.GetOperationRequest{OperationId: c.Operation})
		answered(c, o)
	case check.GetMachine:
		var m *baremetalv1.Machine
		m, err = p.machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: c.Machine})
		c.Active = m.GetStatus().GetActiveOperationId()
	case check.List:
		_, err = p.machines().ListMachines(ctx, &baremetalv1.ListMachinesRequest{PageSize: 50})
	}
	c.End = r.since()
	c.Outcome = outcome(err)
	if err != nil {
		c.Reason, c.Error = failure.From(err).Reason, err.Error()
	}
}

func answered(c *check.Call, o *baremetalv1.Operation) {
	if o != nil {
		c.Operation, c.Phase = o.GetOperationId(), o.GetPhase().String()
	}
}

// outcome: only what a controller refuses for a reason is known to have had no effect.
func outcome(err error) check.Outcome {
	switch status.Code(err) {
	case codes.OK:
		return check.OK
	case codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied:
		return check.Refused
	}
	return check.Unknown
}

// The limits of a try are short: a final loss must be noticed in a run. They are not so short that a busy machine
// misses them.
const tryLimit = 5

// limit is that of a try in this run, in seconds.
func (r *attempt) limit() int32 {
	if r.p.Limit > 0 {
		return r.p.Limit
	}
	if r.p.Patient && r.c.steppable {
		return plan.PatientLimit
	}
	return tryLimit
}

func start(
	ctx context.Context, p *controllerProgram, kind, machine, request string, limit int32,
) (*baremetalv1.Operation, error) {
	switch kind {
	case plan.Reimage:
		return p.machines().ReimageMachine(ctx, &baremetalv1.ReimageMachineRequest{
			MachineId: machine, RequestId: request, ImageRef: "ubuntu-2204", TimeoutSeconds: limit,
		})
	case plan.Netboot:
		return p.machines().NetbootMachine(ctx, &baremetalv1.NetbootMachineRequest{
			MachineId: machine, RequestId: request, Mode: "PXE", Reboot: true, TimeoutSeconds: limit,
		})
	}
	mode := "graceful"
	if kind == plan.Force {
		mode = "force"
	}
	return p.machines().RebootMachine(ctx, &baremetalv1.RebootMachineRequest{
		MachineId: machine, RequestId: request, Mode: mode, TimeoutSeconds: limit,
	})
}

func (p *controllerProgram) machines() baremetalv1.MachineServiceClient {
	return baremetalv1.NewMachineServiceClient(p.conn)
}

func (p *controllerProgram) operations() baremetalv1.OperationServiceClient {
	return baremetalv1.NewOperationServiceClient(p.conn)
}

func (p *controllerProgram) admin() baremetalv1.AdminServiceClient {
	return baremetalv1.NewAdminServiceClient(p.conn)
}
