// Package customer is a client of the customer API as its design describes it: compiled against the design's own
// messages, it knows nothing that was published later. It runs the examples of the design.
package customer

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Client calls the services of the design.
type Client struct{ conn grpc.ClientConnInterface }

// New makes a client over a connection that carries the token.
func New(conn grpc.ClientConnInterface) *Client { return &Client{conn} }

// The methods by their names on the wire.
const (
	machineService   = "/baremetal.v1.MachineService/"
	operationService = "/baremetal.v1.OperationService/"
)

func call[M any, P interface {
	*M
	proto.Message
}](ctx context.Context, c *Client, method string, in proto.Message) (P, error) {
	out := P(new(M))
	return out, c.conn.Invoke(ctx, method, in, out)
}

// RegisterMachine adds a machine, or updates one.
func (c *Client) RegisterMachine(ctx context.Context, m *Machine) (*Machine, error) {
	return call[Machine](ctx, c, machineService+"RegisterMachine", &RegisterMachineRequest{Machine: m})
}

// GetMachine reads a machine.
func (c *Client) GetMachine(ctx context.Context, id string) (*Machine, error) {
	return call[Machine](ctx, c, machineService+"GetMachine", &GetMachineRequest{MachineId: id})
}

// ListMachines reads the inventory. The design has no pages.
func (c *Client) ListMachines(ctx context.Context) ([]*Machine, error) {
	r, err := call[ListMachinesResponse](ctx, c, machineService+"ListMachines", &ListMachinesRequest{})
	return r.GetMachines(), err
}

// UpdateMachine changes spec and labels.
func (c *Client) UpdateMachine(ctx context.Context, m *Machine) (*Machine, error) {
	return call[Machine](ctx, c, machineService+"UpdateMachine", &UpdateMachineRequest{Machine: m})
}

// Reboot reboots a machine.
func (c *Client) Reboot(ctx context.Context, machine, request string) (*Operation, error) {
	return call[Operation](ctx, c, machineService+"RebootMachine",
		&RebootMachineRequest{MachineId: machine, RequestId: request})
}

// Reimage writes an image; empty is the machine's or the server's default.
func (c *Client) Reimage(ctx context.Context, machine, request, image string) (*Operation, error) {
	return call[Operation](ctx, c, machineService+"ReimageMachine",
		&ReimageMachineRequest{MachineId: machine, RequestId: request, ImageRef: image})
}

// EnterMaintenance takes a machine out of service.
func (c *Client) EnterMaintenance(ctx context.Context, machine, request string) (*Operation, error) {
	return call[Operation](ctx, c, machineService+"EnterMaintenance",
		&EnterMaintenanceRequest{MachineId: machine, RequestId: request})
}

// ExitMaintenance returns a machine to service.
func (c *Client) ExitMaintenance(ctx context.Context, machine, request string) (*Operation, error) {
	return call[Operation](ctx, c, machineService+"ExitMaintenance",
		&ExitMaintenanceRequest{MachineId: machine, RequestId: request})
}

// Cancel asks an operation to stop.
func (c *Client) Cancel(ctx context.Context, operation string) (*Operation, error) {
	return call[Operation](ctx, c, machineService+"CancelOperation", &CancelOperationRequest{OperationId: operation})
}

// ListOperations reads all operations. The design has no pages.
func (c *Client) ListOperations(ctx context.Context) ([]*Operation, error) {
	r, err := call[ListOperationsResponse](ctx, c, operationService+"ListOperations", &ListOperationsRequest{})
	return r.GetOperations(), err
}

// stream is what a server streams.
type stream[M any] struct{ grpc.ClientStream }

func open[M any](ctx context.Context, c *Client, method string, in proto.Message) (*stream[M], error) {
	s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, operationService+method)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", method, err)
	}
	if err := s.SendMsg(in); err != nil {
		return nil, fmt.Errorf("send %s: %w", method, err)
	}
	return &stream[M]{s}, s.CloseSend()
}

// Recv returns the next message.
func (s *stream[M]) Recv() (*M, error) {
	out := new(M)
	return out, s.RecvMsg(out)
}

// Watch streams operation events; an empty filter watches the fleet.
func (c *Client) Watch(ctx context.Context, filter string) (*stream[OperationEvent], error) {
	return open[OperationEvent](ctx, c, "WatchOperations", &WatchOperationsRequest{Filter: filter})
}

// Await watches an operation to its end, and returns it with the phases that it went through.
func (c *Client) Await(ctx context.Context, op *Operation) (*Operation, []Operation_Phase, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := c.Watch(ctx, "operation_id="+op.GetOperationId())
	if err != nil {
		return nil, nil, err
	}
	var phases []Operation_Phase
	for {
		e, err := events.Recv()
		if err != nil {
			return nil, phases, fmt.Errorf("watch %s: %w", op.GetOperationId(), err)
		}
		phase := e.GetSnapshot().GetPhase()
		if len(phases) == 0 || phases[len(phases)-1] != phase {
			phases = append(phases, phase)
		}
		if phase >= Operation_SUCCEEDED {
			return e.GetSnapshot(), phases, nil
		}
	}
}
