package public_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/catalog/image"
	"github.com/ingot-metal/ingot/controller/catalog/script"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/store"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// engine does of the real engine what needs no agents.
type engine struct {
	store   *store.Store
	mu      sync.Mutex
	changed chan struct{}
}

func (e *engine) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

func (e *engine) publish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *engine) Start(ctx context.Context, r operationstore.StartRequest) (*pb.Operation, error) {
	op, _, err := e.store.Start(ctx, r, time.Now())
	e.publish()
	return op, err
}

func (e *engine) Cancel(ctx context.Context, id, actor string) (*pb.Operation, error) {
	a, err := e.store.Cancel(ctx, id, actor, time.Now())
	if err != nil {
		return nil, err
	}
	e.publish()
	if err := a.Refused(); err != nil {
		return nil, err
	}
	return e.store.GetOperation(ctx, id)
}

func (e *engine) CreateRollout(ctx context.Context, r rolloutstore.RolloutRequest) (*pb.Rollout, error) {
	ro, _, err := e.store.CreateRollout(ctx, r, time.Now())
	e.publish()
	return ro, err
}

func (e *engine) ActOnRollout(ctx context.Context, a rolloutstore.RolloutAct) (*pb.Rollout, error) {
	ro, _, err := e.store.ActOnRollout(ctx, a, time.Now())
	e.publish()
	return ro, err
}

func (e *engine) TransitionNode(ctx context.Context, r nodestore.TransitionRequest) (*pb.Operation, error) {
	op, _, err := e.store.TransitionNode(ctx, r, time.Now())
	e.publish()
	return op, err
}

func (e *engine) ApproveDiscovered(ctx context.Context, r nodestore.ApproveRequest) (*pb.Operation, error) {
	op, _, err := e.store.ApproveDiscovered(ctx, r, time.Now())
	e.publish()
	return op, err
}

func (e *engine) StartWorkflow(ctx context.Context, r workflowstore.WorkflowStart) (*pb.Operation, error) {
	op, _, err := e.store.StartWorkflow(ctx, r, time.Now())
	e.publish()
	return op, err
}

func (e *engine) ActOnWorkflow(ctx context.Context, r workflowstore.WorkflowAct) (*pb.Operation, error) {
	a, err := e.store.ActOnWorkflow(ctx, r, time.Now())
	e.publish()
	if err != nil {
		return nil, err
	}
	return a.Operation, nil
}

func (e *engine) Settle(
	ctx context.Context, machineID, commandID, verdict, actor, comment string,
) (*pb.Machine, error) {
	return e.store.Settle(ctx, machineID, commandID, verdict, actor, comment, time.Now())
}

func (e *engine) RevokeAgent(ctx context.Context, agentID, fingerprint, actor, reason string) error {
	_, err := e.store.RevokeAgent(ctx, agentID, fingerprint, actor, reason, time.Now())
	return err
}

// look lets the operation take a step.
func (e *engine) look(ctx context.Context, id string) error {
	_, err := e.store.Decide(ctx, id, operation.Evaluate{}, time.Now())
	e.publish()
	return err
}

// rig is a frontpage over a real database, and its clients.
type rig struct {
	t      *testing.T
	store  *store.Store
	engine *engine
	blobs  *blob.Dir

	machines   pb.MachineServiceClient
	operations pb.OperationServiceClient
	plans      pb.PlanServiceClient
	runs       pb.RunServiceClient
	nodes      pb.NodeServiceClient
	workflows  pb.WorkflowServiceClient
	admin      pb.AdminServiceClient
	scripts    pb.ScriptServiceClient
	budgets    pb.BudgetServiceClient
	maas       pb.MAASServiceClient
	rollouts   pb.RolloutServiceClient
}

func newRig(t *testing.T, change ...func(*public.Config)) *rig {
	t.Helper()
	st := storetest.New(t)
	e := &engine{store: st, changed: make(chan struct{})}
	blobs, err := blob.Open(blob.Config{Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	box, err := secret.New(bytes.Repeat([]byte{7}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	cfg := public.Config{
		Engine: e, Store: st, Images: image.New(image.Config{Blobs: blobs, Store: st, Logger: testkit.Logger(t)}),
		Secrets: box,
		Scripts: script.New(script.Config{Blobs: blobs, Store: st, Clock: clock.Real(), Logger: testkit.Logger(t)}),
		Info:    public.Info{Version: "v-test", ControllerID: "c-test", CAHash: "ab"},
		Bundle:  func(id, secret string, _ time.Time) (string, error) { return "bundle:" + id + ":" + secret, nil },
	}
	for _, c := range change {
		c(&cfg)
	}
	r := &rig{t: t, store: st, engine: e, blobs: blobs}
	conn := serve(t, public.New(cfg))
	r.machines, r.operations, r.plans = pb.NewMachineServiceClient(conn), pb.NewOperationServiceClient(conn),
		pb.NewPlanServiceClient(conn)
	r.runs, r.nodes = pb.NewRunServiceClient(conn), pb.NewNodeServiceClient(conn)
	r.workflows, r.admin = pb.NewWorkflowServiceClient(conn), pb.NewAdminServiceClient(conn)
	r.scripts, r.budgets = pb.NewScriptServiceClient(conn), pb.NewBudgetServiceClient(conn)
	r.maas, r.rollouts = pb.NewMAASServiceClient(conn), pb.NewRolloutServiceClient(conn)
	return r
}

func serve(t *testing.T, s *public.Server) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	f := failure.Interceptor{Logger: testkit.Logger(t)}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(f.Unary(), asCaller),
		grpc.ChainStreamInterceptor(f.Stream(), asStreamCaller))
	public.Register(server, s)
	done := make(chan struct{})
	task.Background("serve", func() { defer close(done); _ = server.Serve(listener) })
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); server.Stop(); <-done })
	return conn
}

func asCaller(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	name := "tester"
	if other := metadata.ValueFromIncomingContext(ctx, "test-caller"); len(other) == 1 {
		name = other[0]
	}
	scope := auth.ScopeAdmin
	if other := metadata.ValueFromIncomingContext(ctx, "test-scope"); len(other) == 1 {
		var err error
		if scope, err = auth.ParseScope(other[0]); err != nil {
			return nil, err
		}
	}
	return next(auth.WithCaller(ctx, auth.Caller{Name: name, Scope: scope, Address: "192.0.2.9"}), req)
}

// callerStream is a stream with a caller.
type callerStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s callerStream) Context() context.Context { return s.ctx }

func asStreamCaller(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return next(srv, callerStream{s, auth.WithCaller(s.Context(), auth.Caller{Name: "tester", Scope: auth.ScopeAdmin})})
}

func (r *rig) register(m *pb.Machine) *pb.Machine {
	r.t.Helper()
	out, err := r.machines.RegisterMachine(r.t.Context(), &pb.RegisterMachineRequest{Machine: m})
	if err != nil {
		r.t.Fatalf("register %v: %v", m, err)
	}
	return out
}

// enter opens a maintenance operation and leaves it PENDING.
func (r *rig) enter(machineID, requestID string) *pb.Operation {
	r.t.Helper()
	op, err := r.machines.EnterMaintenance(r.t.Context(),
		&pb.EnterMaintenanceRequest{MachineId: machineID, RequestId: requestID})
	if err != nil {
		r.t.Fatalf("enter maintenance: %v", err)
	}
	return op
}

// maintenance brings a machine into phase MAINTENANCE.
func (r *rig) maintenance(machineID string) {
	r.t.Helper()
	op := r.enter(machineID, "to-maintenance")
	r.look(op.GetOperationId())
	r.look(op.GetOperationId())
	m, err := r.store.GetMachine(r.t.Context(), machineID, "")
	if err != nil || m.GetStatus().GetPhase() != pb.MachineStatus_MAINTENANCE {
		r.t.Fatalf("not in maintenance: %v %v", m, err)
	}
}

func (r *rig) look(id string) {
	r.t.Helper()
	if err := r.engine.look(r.t.Context(), id); err != nil {
		r.t.Fatalf("look at %s: %v", id, err)
	}
}

// wants fails unless err has this kind and reason and names the field (where one is given).
func wants(t *testing.T, err error, kind failure.Kind, reason, field string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, wanted %s", reason)
	}
	e := failure.From(err)
	if e.Kind != kind || e.Reason != reason {
		t.Fatalf("got %s %s (%v), wanted %s %s", e.Kind, e.Reason, err, kind, reason)
	}
	if field == "" {
		return
	}
	if !slices.ContainsFunc(e.Fields, func(f failure.Field) bool { return f.Path == field }) {
		t.Fatalf("%s names %v, not %s", reason, e.Fields, field)
	}
}

func newMachine(i int) *pb.Machine {
	return &pb.Machine{MachineId: fmt.Sprintf("m-%03d", i), Spec: &pb.MachineSpec{}}
}

var errStop = errors.New("stop")
