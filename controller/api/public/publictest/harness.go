// Package publictest serves the public API over a real database for its tests.
package publictest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
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
	publicaccess "github.com/ingot-metal/ingot/controller/api/public/access"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/catalog/image"
	"github.com/ingot-metal/ingot/controller/catalog/script"
	"github.com/ingot-metal/ingot/controller/domain/access"
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

// Engine does of the real engine what needs no agents.
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

// Publish wakes those who wait for a change.
func (e *engine) Publish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *engine) Start(ctx context.Context, r operationstore.StartRequest) (*pb.Operation, error) {
	op, _, err := e.store.Operations.Start(ctx, r, time.Now())
	e.Publish()
	return op, err
}

func (e *engine) Cancel(ctx context.Context, id, actor string) (*pb.Operation, error) {
	a, err := e.store.Operations.Cancel(ctx, id, actor, time.Now())
	if err != nil {
		return nil, err
	}
	e.Publish()
	if err := a.Refused(); err != nil {
		return nil, err
	}
	return e.store.OperationQueries.GetOperation(ctx, id)
}

func (e *engine) CreateRollout(ctx context.Context, r rolloutstore.RolloutRequest) (*pb.Rollout, error) {
	ro, _, err := e.store.Rollouts.CreateRollout(ctx, r, time.Now())
	e.Publish()
	return ro, err
}

func (e *engine) ActOnRollout(ctx context.Context, a rolloutstore.RolloutAct) (*pb.Rollout, error) {
	ro, _, err := e.store.Rollouts.ActOnRollout(ctx, a, time.Now())
	e.Publish()
	return ro, err
}

func (e *engine) TransitionNode(ctx context.Context, r nodestore.TransitionRequest) (*pb.Operation, error) {
	op, _, err := e.store.Nodes.TransitionNode(ctx, r, time.Now())
	e.Publish()
	return op, err
}

func (e *engine) ApproveDiscovered(ctx context.Context, r nodestore.ApproveRequest) (*pb.Operation, error) {
	op, _, err := e.store.Nodes.ApproveDiscovered(ctx, r, time.Now())
	e.Publish()
	return op, err
}

func (e *engine) StartWorkflow(ctx context.Context, r workflowstore.WorkflowStart) (*pb.Operation, error) {
	op, _, err := e.store.Workflows.StartWorkflow(ctx, r, time.Now())
	e.Publish()
	return op, err
}

func (e *engine) ActOnWorkflow(ctx context.Context, r workflowstore.WorkflowAct) (*pb.Operation, error) {
	a, err := e.store.Workflows.ActOnWorkflow(ctx, r, time.Now())
	e.Publish()
	if err != nil {
		return nil, err
	}
	return a.Operation, nil
}

func (e *engine) Settle(
	ctx context.Context, machineID, commandID, verdict, actor, comment string,
) (*pb.Machine, error) {
	return e.store.Operations.Settle(ctx, machineID, commandID, verdict, actor, comment, time.Now())
}

func (e *engine) RevokeAgent(ctx context.Context, agentID, fingerprint, actor, reason string) error {
	_, err := e.store.Agents.RevokeAgent(ctx, agentID, fingerprint, actor, reason, time.Now())
	return err
}

// Look lets the operation take a step.
func (e *engine) Look(ctx context.Context, id string) error {
	_, err := e.store.Operations.Decide(ctx, id, operation.Evaluate{}, time.Now())
	e.Publish()
	return err
}

// Rig is the public API over a real database, and its clients.
type Rig struct {
	T      *testing.T
	Store  *store.Store
	Engine *engine
	Blobs  *blob.Dir
	Conn   *grpc.ClientConn

	Machines   pb.MachineServiceClient
	Operations pb.OperationServiceClient
	Plans      pb.PlanServiceClient
	Runs       pb.RunServiceClient
	Nodes      pb.NodeServiceClient
	Workflows  pb.WorkflowServiceClient
	Admin      pb.AdminServiceClient
	Scripts    pb.ScriptServiceClient
	Budgets    pb.BudgetServiceClient
	MAAS       pb.MAASServiceClient
	Rollouts   pb.RolloutServiceClient
	Access     pb.AccessServiceClient
	Authority  pb.AuthorityServiceClient
	Views      pb.ViewServiceClient
}

// NewRig serves the public API over an empty database.
func NewRig(t *testing.T, change ...func(*service.Config)) *Rig {
	t.Helper()
	return NewRigOn(t, storetest.New(t), change...)
}

// NewRigOn serves the public API over a store.
func NewRigOn(t *testing.T, st *store.Store, change ...func(*service.Config)) *Rig {
	t.Helper()
	e := &engine{store: st, changed: make(chan struct{})}
	blobs, err := blob.Open(blob.Config{Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	box, err := secret.New(bytes.Repeat([]byte{7}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := ca.New(ca.Config{Dir: filepath.Join(t.TempDir(), "ca")})
	if err != nil {
		t.Fatal(err)
	}
	cfg := service.Config{
		Engine: e, Images: image.New(image.Config{Blobs: blobs, Store: st.Catalog, Logger: testkit.Logger(t)}),
		Secrets: box,
		Scripts: script.New(script.Config{Blobs: blobs, Store: st.Catalog, Clock: clock.Real(), Logger: testkit.Logger(t)}),
		Info:    service.Info{Version: "v-test", ControllerID: "c-test"}, CA: authority, CAGrace: 90 * 24 * time.Hour,
		Bundle: func(id, secret string, _ time.Time) (string, error) { return "bundle:" + id + ":" + secret, nil },
	}
	for _, c := range change {
		c(&cfg)
	}
	r := &Rig{T: t, Store: st, Engine: e, Blobs: blobs}
	conn := Serve(t, cfg, st)
	r.Conn = conn
	r.Machines, r.Operations, r.Plans = pb.NewMachineServiceClient(conn), pb.NewOperationServiceClient(conn),
		pb.NewPlanServiceClient(conn)
	r.Runs, r.Nodes = pb.NewRunServiceClient(conn), pb.NewNodeServiceClient(conn)
	r.Workflows, r.Admin = pb.NewWorkflowServiceClient(conn), pb.NewAdminServiceClient(conn)
	r.Scripts, r.Budgets = pb.NewScriptServiceClient(conn), pb.NewBudgetServiceClient(conn)
	r.Access, r.Authority = pb.NewAccessServiceClient(conn), pb.NewAuthorityServiceClient(conn)
	r.Views = pb.NewViewServiceClient(conn)
	r.MAAS, r.Rollouts = pb.NewMAASServiceClient(conn), pb.NewRolloutServiceClient(conn)
	return r
}

// Serve serves the public API in memory and returns a connection to it.
func Serve(t *testing.T, c service.Config, s *store.Store) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	f := failure.Interceptor{Logger: testkit.Logger(t)}
	held := publicaccess.Interceptor{
		Machines: s.Machines, Operations: s.OperationQueries, Workflows: s.Workflows, Nodes: s.Nodes,
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(f.Unary(), asCaller, held.Unary()),
		grpc.ChainStreamInterceptor(f.Stream(), asStreamCaller, held.Stream()))
	public.Register(server, c, s)
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
	caller, err := callerOf(ctx)
	if err != nil {
		return nil, err
	}
	return next(call.WithCaller(ctx, caller), req)
}

// callerOf returns the caller that the metadata of a call names.
func callerOf(ctx context.Context) (access.Caller, error) {
	name := "tester"
	if other := metadata.ValueFromIncomingContext(ctx, "test-caller"); len(other) == 1 {
		name = other[0]
	}
	scope := access.ScopeAdmin
	if other := metadata.ValueFromIncomingContext(ctx, "test-scope"); len(other) == 1 {
		var err error
		if scope, err = access.ParseScope(other[0]); err != nil {
			return access.Caller{}, err
		}
	}
	if grants := grantsOf(ctx); len(grants) > 0 {
		who := access.Person{Issuer: "https://provider.test", Subject: name, Name: name}
		return access.PersonCaller(who, grants, scope)
	}
	return access.Caller{Name: name, Scope: scope, Address: "192.0.2.9"}, nil
}

// grantsOf are the roles that Within has put into the metadata.
func grantsOf(ctx context.Context) (out []access.Grant) {
	for _, s := range metadata.ValueFromIncomingContext(ctx, "test-selection") {
		out = append(out, access.Grant{Role: access.Operator, Selection: s})
	}
	return out
}

// Within makes calls as a person who is an operator of the machines of these selections.
func Within(ctx context.Context, selections ...string) context.Context {
	pairs := []string{"test-scope", access.ScopeOperate.String()}
	for _, s := range selections {
		pairs = append(pairs, "test-selection", s)
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// callerStream is a stream with a caller.
type callerStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s callerStream) Context() context.Context { return s.ctx }

func asStreamCaller(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	caller, err := callerOf(s.Context())
	if err != nil {
		return err
	}
	return next(srv, callerStream{s, call.WithCaller(s.Context(), caller)})
}

// Register registers a machine.
func (r *Rig) Register(m *pb.Machine) *pb.Machine {
	r.T.Helper()
	out, err := r.Machines.RegisterMachine(r.T.Context(), &pb.RegisterMachineRequest{Machine: m})
	if err != nil {
		r.T.Fatalf("register %v: %v", m, err)
	}
	return out
}

// Enter opens a maintenance operation and leaves it PENDING.
func (r *Rig) Enter(machineID, requestID string) *pb.Operation {
	r.T.Helper()
	op, err := r.Machines.EnterMaintenance(r.T.Context(),
		&pb.EnterMaintenanceRequest{MachineId: machineID, RequestId: requestID})
	if err != nil {
		r.T.Fatalf("enter maintenance: %v", err)
	}
	return op
}

// Maintenance brings a machine into phase MAINTENANCE.
func (r *Rig) Maintenance(machineID string) {
	r.T.Helper()
	op := r.Enter(machineID, "to-maintenance")
	r.Look(op.GetOperationId())
	r.Look(op.GetOperationId())
	m, err := r.Store.Machines.GetMachine(r.T.Context(), machineID, "")
	if err != nil || m.GetStatus().GetPhase() != pb.MachineStatus_MAINTENANCE {
		r.T.Fatalf("not in maintenance: %v %v", m, err)
	}
}

// Look lets the operation take a step.
func (r *Rig) Look(id string) {
	r.T.Helper()
	if err := r.Engine.Look(r.T.Context(), id); err != nil {
		r.T.Fatalf("look at %s: %v", id, err)
	}
}

// Wants fails unless err has this kind and reason and names the field (where one is given).
func Wants(t *testing.T, err error, kind failure.Kind, reason, field string) {
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

// NewMachine is a machine with a number for its id.
func NewMachine(i int) *pb.Machine {
	return &pb.Machine{MachineId: fmt.Sprintf("m-%03d", i), Spec: &pb.MachineSpec{}}
}

// ErrStop ends a watch.
var ErrStop = errors.New("stop")
