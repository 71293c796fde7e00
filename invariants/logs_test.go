package invariants

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/obs"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// Every call of the frontpage is made with a valid token and with an invalid one, among them calls that fail and one
// that panics. Neither token, nor the scheme before it, may be anywhere in the log.
func TestNoLogLineCarriesABearerToken(t *testing.T) {
	log := &testkit.Buffer{}
	ctl, token := startController(t, log)
	conn := dial(t, ctl)
	wrong := "ingotb_" + strings.Repeat("w", 43)
	calls := 0
	for _, secret := range []string{token, wrong} {
		for method, stream := range frontpageMethods(t) {
			callOnce(t, conn, method, stream, secret)
			calls++
		}
	}
	panicOnce(t, conn, token)
	if calls < 100 {
		t.Fatalf("only %d calls were made", calls)
	}
	text := log.String()
	for _, want := range []string{"BEARER_INVALID", "panic"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log has no %q: the calls did not get where they should", want)
		}
	}
	for _, bad := range []string{token, wrong, "Bearer ", "bearer "} {
		if i := strings.Index(text, bad); i >= 0 {
			t.Errorf("the log carries a token or its scheme: …%s…", text[max(0, i-200):min(len(text), i+40)])
		}
	}
}

func startController(
	t *testing.T, log *testkit.Buffer, change ...func(*config.Config),
) (*controller.Controller, string) {
	t.Helper()
	dir := testkit.TempDir(t)
	c := config.Default()
	c.Listen = config.Listen{Frontpage: "127.0.0.1:0", Fleet: "127.0.0.1:0", Enrolment: "127.0.0.1:0", HTTP: "127.0.0.1:0"}
	c.DataDir, c.TokensFile = dir, filepath.Join(dir, "tokens")
	c.Database.URL = testkit.EmptyDatabase(t)
	c.TLS.Names = []string{"127.0.0.1"}
	for _, ch := range change {
		ch(c)
	}
	scope, err := access.ParseScope("admin")
	if err != nil {
		t.Fatal(err)
	}
	token, err := auth.AddToken(c.TokensFile, "marked", scope)
	if err != nil {
		t.Fatal(err)
	}
	logger, err := obs.NewLogger(log, obs.LogConfig{Level: "debug"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ctl, err := controller.New(ctx, *c, controller.Options{Logger: logger, Version: "test"})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- ctl.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("controller ended: %v", err)
		}
	})
	testkit.Eventually(t, 30*time.Second, func() bool { return strings.Contains(log.String(), "controller ready") },
		"controller ready")
	return ctl, token
}

func dial(t *testing.T, ctl *controller.Controller) *grpc.ClientConn {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ctl.RootPEM())
	conn, err := grpc.NewClient(ctl.Addresses().Frontpage, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13,
	})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// frontpageMethods returns every method of baremetal.v1 with its descriptor.
func frontpageMethods(t *testing.T) map[string]protoreflect.MethodDescriptor {
	t.Helper()
	out := map[string]protoreflect.MethodDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage("baremetal.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for k := range methods.Len() {
				m := methods.Get(k)
				out["/"+string(m.Parent().FullName())+"/"+string(m.Name())] = m
			}
		}
		return true
	})
	return out
}

// callOnce makes a call with an empty request. What it answers does not matter here.
func callOnce(t *testing.T, conn *grpc.ClientConn, method string, m protoreflect.MethodDescriptor, token string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(withToken(t, token), 300*time.Millisecond)
	defer cancel()
	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if !m.IsStreamingServer() {
		_ = conn.Invoke(ctx, method, in, out)
		return
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return
	}
	if s.SendMsg(in) == nil && s.CloseSend() == nil {
		for s.RecvMsg(out) == nil { //nolint:revive // read to the end
		}
	}
}

func withToken(t *testing.T, token string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
}

// panicOnce has a handler panic in the middle of a call that carries the token.
func panicOnce(t *testing.T, conn *grpc.ClientConn, token string) {
	t.Helper()
	machines := baremetalv1.NewMachineServiceClient(conn)
	ctx := withToken(t, token)
	// One of the calls before has frozen the fleet.
	if _, err := baremetalv1.NewAdminServiceClient(conn).ThawFleet(ctx, &baremetalv1.ThawFleetRequest{}); err != nil {
		t.Fatal(err)
	}
	m, err := machines.RegisterMachine(ctx,
		&baremetalv1.RegisterMachineRequest{Machine: &baremetalv1.Machine{MachineId: "m-1"}})
	if err != nil {
		t.Fatal(err)
	}
	plans := baremetalv1.NewPlanServiceClient(conn)
	wait := &baremetalv1.Step{Name: "wait",
		Kind: &baremetalv1.Step_WaitForAgent{WaitForAgent: &baremetalv1.WaitForAgent{}}}
	p, err := plans.CreatePlan(ctx,
		&baremetalv1.CreatePlanRequest{Plan: &baremetalv1.Plan{Steps: []*baremetalv1.Step{wait}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := machines.EnterMaintenance(ctx, &baremetalv1.EnterMaintenanceRequest{MachineId: m.GetMachineId(),
		RequestId: "r-0"}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool {
		m, err = machines.GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: "m-1"})
		return err == nil && m.GetStatus().GetActiveOperationId() == ""
	}, "maintenance entered")
	run, err := baremetalv1.NewRunServiceClient(conn).StartRun(ctx, &baremetalv1.StartRunRequest{
		MachineId: "m-1", RequestId: "r-1", PlanId: p.GetPlanId(),
	})
	if err != nil {
		t.Fatal(err)
	}
	restore := failpoint.Set("store.before-apply", failpoint.Panic())
	defer restore()
	if _, err := machines.CancelOperation(ctx,
		&baremetalv1.CancelOperationRequest{OperationId: run.GetRunId()}); err == nil {
		t.Error("the call that panics has answered well")
	}
}
