package cli

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// fakeServer answers from scripts. A start is answered like a controller does: one operation per request id.
type fakeServer struct {
	pb.UnimplementedMachineServiceServer
	pb.UnimplementedOperationServiceServer
	pb.UnimplementedAdminServiceServer
	pb.UnimplementedRunServiceServer
	pb.UnimplementedPlanServiceServer
	pb.UnimplementedWorkflowServiceServer
	pb.UnimplementedNodeServiceServer
	pb.UnimplementedScriptServiceServer
	pb.UnimplementedClusterServiceServer
	pb.UnimplementedMAASServiceServer
	pb.UnimplementedBudgetServiceServer
	pb.UnimplementedRolloutServiceServer
	pb.UnimplementedAccessServiceServer
	pb.UnimplementedAuthorityServiceServer
	pb.UnimplementedViewServiceServer

	mu       sync.Mutex
	machines []*pb.Machine
	// op is the result of a start and of GetOperation; after is the machine once it was watched.
	op    *pb.Operation
	after *pb.Machine
	// startErrs are returned by the next starts, after the start has taken effect.
	startErrs []error
	starts    []string // request ids as they came in
	made      map[string]bool
	// watches and logs are the scripts of the streams, one for each time one is opened; the last is repeated.
	watches    []func(*pb.WatchOperationsRequest, pb.OperationService_WatchOperationsServer) error
	watchReqs  []*pb.WatchOperationsRequest
	runWatches []*pb.WatchRunsRequest
	// onRunWatch is called with each watch of runs.
	onRunWatch func()
	logs       []func(*pb.StreamOperationLogsRequest, pb.OperationService_StreamOperationLogsServer) error
	logReqs    []*pb.StreamOperationLogsRequest
	registered []*pb.RegisterMachineRequest
	settled    []*pb.SettleCommandRequest
	sent       []proto.Message // requests of the other writing calls
	uploaded   []byte
	// knownDigest is of a file that the server has already.
	knownDigest string
	// ctx is the command line's, when a script wants to end it.
	ctx context.Context
	// audit are the rows of the audit log; one of machine-1 when nil.
	audit []*pb.AuditEntry
	// serverInfos are the errors of the next calls of GetServerInfo, nil for an answer.
	serverInfos []error
	// agents are what ListAgents returns, beside someAgent.
	agents []*pb.Agent
	// broken is the machine whose history is at fault.
	broken string
	// lost is the machine whose kept head is not in its history, restored one whose head a restore explains.
	lost, restored string
	// fail makes every call of the method fail.
	fail map[string]error
	// lose lets the next call of the method happen, and loses its answer.
	lose map[string]error
	// conflicts is how many updates of a machine come too late, from the first.
	conflicts int
	// asked are the unary calls, each with its request as JSON.
	asked []string
	// looks is how often the CA was looked at.
	looks int32
	// hostile is appended to every string of every answer.
	hostile string
	// certificate is the erasure certificate of every operation.
	certificate string
	// pinged is what becomes of a webhook's delivery that was pending; delivered when nil.
	pinged *pb.WebhookDelivery
}

func (f *fakeServer) intercept(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler,
) (any, error) {
	_, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
	if err := f.fail[method]; err != nil {
		return nil, err
	}
	return h(ctx, req)
}

func (f *fakeServer) find(id string) (*pb.Machine, error) {
	for _, m := range f.machines {
		if m.GetMachineId() == id {
			return m, nil
		}
	}
	return nil, refuse(codes.NotFound, pb.Reason_MACHINE_NOT_FOUND, "machine "+id+" not found", nil)
}

func (f *fakeServer) GetMachine(_ context.Context, r *pb.GetMachineRequest) (*pb.Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.after != nil && len(f.watchReqs) > 0 {
		return f.after, nil
	}
	for _, m := range f.machines {
		if r.GetExternalId() != "" && m.GetSpec().GetExternalId() == r.GetExternalId() {
			return m, nil
		}
	}
	return f.find(r.GetMachineId())
}

// ListMachines returns one machine a page, so that every list walks.
func (f *fakeServer) ListMachines(_ context.Context, r *pb.ListMachinesRequest) (*pb.ListMachinesResponse, error) {
	if state, ok := strings.CutPrefix(r.GetFilter(), "effective_state="); ok {
		state, _, _ = strings.Cut(state, ",")
		out := &pb.ListMachinesResponse{}
		for _, m := range f.machines {
			if m.GetStatus().GetEffectiveState().String() == state {
				out.Machines = append(out.Machines, m)
				out.TotalSize++
			}
		}
		return out, nil
	}
	if names, ok := strings.CutPrefix(r.GetFilter(), "machine_id in ("); ok {
		out := &pb.ListMachinesResponse{}
		for _, m := range f.machines {
			if strings.Contains(names, `"`+m.GetMachineId()+`"`) {
				out.Machines = append(out.Machines, m)
			}
		}
		return out, nil
	}
	for i, m := range f.machines {
		if r.GetPageToken() == "" || m.GetMachineId() == r.GetPageToken() {
			resp := &pb.ListMachinesResponse{Machines: []*pb.Machine{m}}
			if i+1 < len(f.machines) {
				resp.NextPageToken = f.machines[i+1].GetMachineId()
			}
			return resp, nil
		}
	}
	return &pb.ListMachinesResponse{}, nil
}

func (f *fakeServer) RegisterMachine(_ context.Context, r *pb.RegisterMachineRequest) (*pb.Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !r.GetValidateOnly() {
		f.registered = append(f.registered, r)
	}
	return r.GetMachine(), nil
}

func (f *fakeServer) start(machine, requestID string) (*pb.Operation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.find(machine); err != nil {
		return nil, err
	}
	if f.made == nil {
		f.made = map[string]bool{}
	}
	f.starts, f.made[requestID] = append(f.starts, requestID), true
	if len(f.startErrs) > 0 {
		err := f.startErrs[0]
		f.startErrs = f.startErrs[1:]
		return nil, err
	}
	op := proto.CloneOf(f.op)
	op.RequestId = requestID
	return op, nil
}

// validated answers a call that only validates: "used" is the request id of other work.
func (f *fakeServer) validated(machine, requestID string) (*pb.Operation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case requestID == "used":
		return nil, refuse(codes.AlreadyExists, pb.Reason_REQUEST_ID_REUSED, "used for other work", nil)
	case f.made[requestID]:
		return f.op, nil
	}
	return &pb.Operation{MachineId: machine, RequestId: requestID, PlanId: "p"}, nil
}

func (f *fakeServer) RebootMachine(_ context.Context, r *pb.RebootMachineRequest) (*pb.Operation, error) {
	if r.GetValidateOnly() {
		return f.validated(r.GetMachineId(), r.GetRequestId())
	}
	return f.start(r.GetMachineId(), r.GetRequestId())
}

func (f *fakeServer) ReimageMachine(_ context.Context, r *pb.ReimageMachineRequest) (*pb.Operation, error) {
	if r.GetValidateOnly() {
		return f.validated(r.GetMachineId(), r.GetRequestId())
	}
	return f.start(r.GetMachineId(), r.GetRequestId())
}

func (f *fakeServer) GetOperation(context.Context, *pb.GetOperationRequest) (*pb.Operation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.op, nil
}

func (f *fakeServer) ListOperations(context.Context, *pb.ListOperationsRequest) (*pb.ListOperationsResponse, error) {
	return &pb.ListOperationsResponse{Operations: []*pb.Operation{f.op}}, nil
}

func (f *fakeServer) GetFleetSummary(context.Context, *pb.GetFleetSummaryRequest) (*pb.FleetSummary, error) {
	return &pb.FleetSummary{RunningOperations: 2, PendingOperations: 1, FailedOperations: 3}, nil
}

func (f *fakeServer) GetErasureCertificate(
	context.Context, *pb.GetErasureCertificateRequest,
) (*pb.ErasureCertificate, error) {
	return &pb.ErasureCertificate{Document: f.certificate}, nil
}

func (f *fakeServer) CancelOperation(context.Context, *pb.CancelOperationRequest) (*pb.Operation, error) {
	return f.op, nil
}

func (f *fakeServer) SettleCommand(_ context.Context, r *pb.SettleCommandRequest) (*pb.Machine, error) {
	f.settled = append(f.settled, r)
	return f.find(r.GetMachineId())
}

func (f *fakeServer) WatchOperations(r *pb.WatchOperationsRequest, s pb.OperationService_WatchOperationsServer) error {
	f.mu.Lock()
	f.watchReqs = append(f.watchReqs, r)
	script := f.watches[min(len(f.watchReqs), len(f.watches))-1]
	f.mu.Unlock()
	return script(r, s)
}

func (f *fakeServer) StreamOperationLogs(
	r *pb.StreamOperationLogsRequest, s pb.OperationService_StreamOperationLogsServer,
) error {
	f.mu.Lock()
	f.logReqs = append(f.logReqs, r)
	n := len(f.logReqs)
	f.mu.Unlock()
	if len(f.logs) == 0 {
		return nil
	}
	return f.logs[min(n, len(f.logs))-1](r, s)
}

// quickClock lets short waits pass at once and long ones, which are limits and polls, never.
type quickClock struct{ clock.Clock }

func (quickClock) After(d time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	if d < 2*time.Second {
		c <- time.Time{}
	}
	return c
}

type result struct {
	code     int
	out, err string
}

func (f *fakeServer) run(t *testing.T, args ...string) result {
	t.Helper()
	return f.runWith(t, func(*command.Config) {}, args...)
}

// runWith runs one command line against the server over an in-memory connection.
func (f *fakeServer) runWith(t *testing.T, change func(*command.Config), args ...string) result {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.UnaryInterceptor(f.record))
	pb.RegisterMachineServiceServer(srv, f)
	pb.RegisterOperationServiceServer(srv, f)
	pb.RegisterAdminServiceServer(srv, f)
	pb.RegisterRunServiceServer(srv, f)
	pb.RegisterPlanServiceServer(srv, f)
	pb.RegisterWorkflowServiceServer(srv, f)
	pb.RegisterNodeServiceServer(srv, f)
	pb.RegisterScriptServiceServer(srv, f)
	pb.RegisterClusterServiceServer(srv, f)
	pb.RegisterMAASServiceServer(srv, f)
	pb.RegisterBudgetServiceServer(srv, f)
	pb.RegisterRolloutServiceServer(srv, f)
	pb.RegisterAccessServiceServer(srv, f)
	pb.RegisterAuthorityServiceServer(srv, f)
	pb.RegisterViewServiceServer(srv, f)
	g, _ := task.New(t.Context())
	g.Go("serve", func(context.Context) error { return srv.Serve(listener) })
	defer func() {
		srv.Stop()
		// A server that is stopped before it has begun to serve returns this error.
		if err := g.Wait(); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("fake server: %v", err)
		}
	}()
	home := t.TempDir()
	env := map[string]string{"HOME": home, "INGOT_SERVER": "controller:50051"}
	var out, errOut bytes.Buffer
	cfg := command.Config{
		Args: args, In: strings.NewReader(""), Out: &out, Err: &errOut,
		Getenv: func(k string) string { return env[k] }, Clock: quickClock{clock.Real()}, Version: "test",
		Connect: func(_ client.Target, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
			dial := func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
			opts = append(opts, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
			return grpc.NewClient("passthrough:///fake", opts...)
		},
	}
	change(&cfg)
	ctx := t.Context()
	if f.ctx != nil {
		ctx = f.ctx
	}
	code := Run(ctx, cfg)
	return result{code, out.String(), errOut.String()}
}
