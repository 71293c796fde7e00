// Package plans is a client of the plans and runs API as its design describes it: compiled against the design's own
// messages, it knows nothing that was published later. It runs the interaction patterns and samples of the design.
package plans

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
	machineService = "/baremetal.v1.MachineService/"
	planService    = "/baremetal.v1.PlanService/"
	runService     = "/baremetal.v1.RunService/"
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

// ListMachines reads one page of the machines that a filter matches.
func (c *Client) ListMachines(ctx context.Context, r *ListMachinesRequest) (*ListMachinesResponse, error) {
	return call[ListMachinesResponse](ctx, c, machineService+"ListMachines", r)
}

// GetPlan reads a plan.
func (c *Client) GetPlan(ctx context.Context, id string) (*Plan, error) {
	return call[Plan](ctx, c, planService+"GetPlan", &GetPlanRequest{PlanId: id})
}

// ListPlans reads all plans. The design has no pages.
func (c *Client) ListPlans(ctx context.Context) ([]*Plan, error) {
	r, err := call[ListPlansResponse](ctx, c, planService+"ListPlans", &ListPlansRequest{})
	return r.GetPlans(), err
}

// StartRun starts a run.
func (c *Client) StartRun(ctx context.Context, r *StartRunRequest) (*Run, error) {
	return call[Run](ctx, c, runService+"StartRun", r)
}

// GetRun reads a run.
func (c *Client) GetRun(ctx context.Context, id string) (*Run, error) {
	return call[Run](ctx, c, runService+"GetRun", &GetRunRequest{RunId: id})
}

// ListRuns reads the runs that a filter matches. The design has no pages.
func (c *Client) ListRuns(ctx context.Context, filter string) ([]*Run, error) {
	r, err := call[ListRunsResponse](ctx, c, runService+"ListRuns", &ListRunsRequest{Filter: filter})
	return r.GetRuns(), err
}

// Events is a stream of run events.
type Events struct{ grpc.ClientStream }

// Recv returns the next event.
func (e *Events) Recv() (*RunEvent, error) {
	out := &RunEvent{}
	return out, e.RecvMsg(out)
}

// WatchRuns streams the events of the runs that a filter matches.
func (c *Client) WatchRuns(ctx context.Context, filter string) (*Events, error) {
	s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, runService+"WatchRuns")
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	if err := s.SendMsg(&WatchRunsRequest{Filter: filter}); err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return &Events{s}, s.CloseSend()
}
