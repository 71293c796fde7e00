package access

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/membership"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/filter"
)

// Machines is the part of the inventory that identifies the machines of a call.
type Machines interface {
	WalkMachines(ctx context.Context, f machinestore.MachineFilter) ([]*baremetalv1.Machine, error)
	GetMachine(ctx context.Context, id, externalID string) (*baremetalv1.Machine, error)
}

// Operations returns operations, each with its machine.
type Operations interface {
	GetOperation(ctx context.Context, id string) (*baremetalv1.Operation, error)
}

// Workflows returns workflows, each with its machine.
type Workflows interface {
	GetWorkflow(ctx context.Context, id string) (*baremetalv1.Workflow, error)
}

// Nodes finds machines by their addresses.
type Nodes interface {
	// MachineOfMAC returns the id of the machine that has a MAC address; empty where none has.
	MachineOfMAC(ctx context.Context, mac string) (string, error)
}

// Interceptor holds callers to the machines of their roles. It stands behind the guard, and before every handler.
type Interceptor struct {
	Machines   Machines
	Operations Operations
	Workflows  Workflows
	Nodes      Nodes
}

// Unary holds unary calls.
func (i Interceptor) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, err := i.enter(ctx, info.FullMethod, req)
		if err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// Stream holds streams, by their first message.
func (i Interceptor) Stream() grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		c, ok := call.Caller(s.Context())
		if _, restricted := c.Within(); !ok || !restricted {
			return next(srv, s)
		}
		if info.IsClientStream {
			return tooNarrow(c, info.FullMethod)
		}
		return next(srv, &held{ServerStream: s, ctx: s.Context(), i: i, method: info.FullMethod})
	}
}

// held is a stream whose request is looked at when the handler reads it.
type held struct {
	grpc.ServerStream
	ctx    context.Context
	i      Interceptor
	method string
}

// Context is that of the caller with the rights that it has here.
func (h *held) Context() context.Context { return h.ctx }

// RecvMsg refuses what the caller may not ask.
func (h *held) RecvMsg(m any) error {
	if err := h.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	ctx, err := h.i.enter(h.ctx, h.method, m)
	if err == nil {
		h.ctx = ctx
	}
	return err
}

// enter refuses a call that is not about the caller's machines, and returns the context of one that is.
func (i Interceptor) enter(ctx context.Context, method string, req any) (context.Context, error) {
	c, ok := call.Caller(ctx)
	selections, restricted := c.Within()
	if !ok || !restricted {
		return ctx, nil
	}
	named := namesOf(req)
	switch auth.AboutOf(method) {
	case auth.AboutNothing:
		return ctx, nil
	case auth.AboutSeveral:
		return call.WithCaller(ctx, c.Least()), nil // the handler keeps to the selections
	case auth.AboutList:
		if r, ok := req.(*baremetalv1.ListMachinesRequest); ok && r.GetOrderBy() != "" {
			return nil, tooNarrow(c, method) // an order is over all machines
		}
		return ctx, nil
	case auth.AboutFilter:
		if named = namesOfFilter(req); named.none() {
			return ctx, nil // the handler keeps to the selections
		}
	case auth.AboutNamed:
		if r, ok := req.(*baremetalv1.RegisterMachineRequest); ok {
			if isNew, err := i.isNew(ctx, r.GetMachine().GetMachineId()); err != nil || isNew {
				return registering(ctx, c, r.GetMachine(), selections, err)
			}
		}
	default:
		return nil, tooNarrow(c, method)
	}
	machines, err := i.machines(ctx, named)
	switch {
	case err != nil:
		return nil, err
	case len(machines) == 0:
		return nil, tooNarrow(c, method)
	}
	lowest := c
	for n, id := range machines {
		in, err := i.inside(ctx, selections, id)
		if err != nil {
			return nil, err
		}
		if len(in) == 0 {
			return nil, c.OutsideSelection()
		}
		if here := c.In(in); n == 0 || here.Scope < lowest.Scope {
			lowest = here
		}
	}
	return call.WithCaller(ctx, lowest), nil
}

// isNew reports whether no machine has the id. A deleted one counts as new: the store refuses it.
func (i Interceptor) isNew(ctx context.Context, id string) (bool, error) {
	if id == "" {
		return true, nil
	}
	_, err := i.Machines.GetMachine(ctx, id, "")
	var no *failure.Error
	if errors.As(err, &no) && no.Kind == failure.KindNotFound {
		return true, nil
	}
	return false, err
}

// registering returns the context of a caller who registers a new machine, with the rights that the caller will have on
// it. The store decides again, in the transaction that writes.
func registering(
	ctx context.Context, c access.Caller, m *baremetalv1.Machine, selections []string, err error,
) (context.Context, error) {
	if err != nil {
		return nil, err
	}
	var in []string
	for _, s := range selections {
		terms, err := membership.ParseSelection(s)
		if err != nil {
			return nil, err
		}
		if membership.OfFields(terms) && machinestore.FieldsOf(m).In(terms) {
			in = append(in, s)
		}
	}
	if len(in) == 0 {
		return nil, c.OutsideSelection()
	}
	return call.WithCaller(ctx, c.In(in)), nil
}

func tooNarrow(c access.Caller, method string) error {
	return failure.Denied(
		"SELECTION_TOO_NARROW",
		"the roles of %s are for some machines, and %s is not about those alone; name one machine where the call can, or "+
			"ask an admin for a role on all machines",
		c.Name,
		method,
	)
}

// inside returns the selections that a machine is in.
func (i Interceptor) inside(ctx context.Context, selections []string, machineID string) (in []string, err error) {
	for _, s := range selections {
		terms, err := query.Machines.Parse(s)
		if err != nil {
			return nil, err
		}
		for _, f := range query.MachineQuery(terms) {
			f.MachineID, f.Limit, f.Sealed = machineID, 1, true
			found, err := i.Machines.WalkMachines(ctx, f)
			if err != nil {
				return nil, err
			}
			if len(found) > 0 {
				in = append(in, s)
				break
			}
		}
	}
	return in, nil
}

// names are what a request is about.
type names struct{ machines, externals, operations, workflows, macs []string }

// none reports whether nothing is named.
func (n names) none() bool {
	return len(n.machines)+len(n.externals)+len(n.operations)+len(n.workflows)+len(n.macs) == 0
}

// namesOf reads every field that names a machine or something of one.
func namesOf(req any) (n names) {
	add := func(to *[]string, id string) {
		if id != "" {
			*to = append(*to, id)
		}
	}
	if r, ok := req.(interface{ GetMachineId() string }); ok {
		add(&n.machines, r.GetMachineId())
	}
	if r, ok := req.(interface{ GetNodeId() string }); ok {
		add(&n.machines, r.GetNodeId())
	}
	if r, ok := req.(interface{ GetMachine() *baremetalv1.Machine }); ok {
		add(&n.machines, r.GetMachine().GetMachineId())
	}
	if r, ok := req.(interface{ GetExternalId() string }); ok && len(n.machines) == 0 {
		add(&n.externals, r.GetExternalId())
	}
	if r, ok := req.(interface{ GetOperationId() string }); ok {
		add(&n.operations, r.GetOperationId())
	}
	if r, ok := req.(interface{ GetRunId() string }); ok {
		add(&n.operations, r.GetRunId())
	}
	if r, ok := req.(*baremetalv1.ReportNodeRequest); ok {
		add(&n.macs, r.GetMacAddress())
	}
	if r, ok := req.(interface{ GetWorkflowId() string }); ok {
		add(&n.workflows, r.GetWorkflowId())
	}
	return n
}

// namesOfFilter reads what a filter requires. One that cannot be read names nothing.
func namesOfFilter(req any) (n names) {
	r, ok := req.(interface{ GetFilter() string })
	if !ok {
		return n
	}
	terms, err := filter.Parse(r.GetFilter())
	if err != nil {
		return n
	}
	for _, t := range terms {
		value, exact := t.Exact()
		switch {
		case !exact:
		case t.Key == "machine_id":
			n.machines = append(n.machines, value)
		case t.Key == "operation_id", t.Key == "run_id":
			n.operations = append(n.operations, value)
		}
	}
	return n
}

// machines returns the ids of the machines behind names, each once. One that does not exist is left as it was named, so
// that it is in no selection.
func (i Interceptor) machines(ctx context.Context, n names) ([]string, error) {
	out := slices.Clone(n.machines)
	for _, id := range n.externals {
		m, err := i.Machines.GetMachine(ctx, "", id)
		out, err = found(out, id, m.GetMachineId(), err)
		if err != nil {
			return nil, err
		}
	}
	for _, id := range n.operations {
		op, err := i.Operations.GetOperation(ctx, id)
		out, err = found(out, id, op.GetMachineId(), err)
		if err != nil {
			return nil, err
		}
	}
	for _, id := range n.workflows {
		w, err := i.Workflows.GetWorkflow(ctx, id)
		out, err = found(out, id, w.GetMachineId(), err)
		if err != nil {
			return nil, err
		}
	}
	for _, text := range n.macs {
		mac, ok := validate.MAC(text)
		if !ok {
			return nil, validate.Fault("mac_address", "is no MAC address")
		}
		id, err := i.Nodes.MachineOfMAC(ctx, mac)
		if err != nil {
			return nil, err
		}
		out = append(out, cmp.Or(id, "no machine of "+mac))
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func found(all []string, name, machineID string, err error) ([]string, error) {
	var no *failure.Error
	switch {
	case err == nil:
		return append(all, machineID), nil
	case errors.As(err, &no) && no.Kind == failure.KindNotFound:
		return append(all, "no machine of "+name), nil
	}
	return nil, err
}
