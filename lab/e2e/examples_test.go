package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/seedclients/customer"
	"github.com/ingot-metal/ingot/lab/seedclients/plans"
)

type tokenCredentials string

func (t tokenCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

func (tokenCredentials) RequireTransportSecurity() bool { return true }

// TestTheStrangersExamples runs every example of the two API designs with clients that are compiled against the designs
// alone.
func TestTheStrangersExamples(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{Configure: func(c *config.Config) { c.DefaultImage = "ubuntu-2204" }})
	// The boot entry of machine-2 cannot be set the first three times: the try and its retries. Nothing has been written
	// then, so that no install attempt is counted, and the machine may be reimaged again at once.
	script := "machine-2/netboot:fail-before@1,machine-2/netboot:fail-before@2,machine-2/netboot:fail-before@3"
	w, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir(), Script: script, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	site := c.NewSite(t, "example", w, harness.MachineOptions{Script: script})
	site.WaitConnected()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.Controller().RootPEM())
	conn, err := grpc.NewClient(c.Front.Address(), grpc.WithPerRPCCredentials(tokenCredentials(c.Token())),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// What the designs leave to the operator: where machines stand, and plans.
	place := func(ctx context.Context, ids ...string) {
		for _, id := range ids {
			harness.Must(t, c.Machines().UpdateMachine, &baremetalv1.UpdateMachineRequest{Machine: &baremetalv1.Machine{
				MachineId: id, Spec: &baremetalv1.MachineSpec{Provider: "fake", Site: "example"},
			}})
		}
	}
	one, two := customer.New(conn), plans.New(conn)
	customerExamples(t, one, place)
	var sample baremetalv1.Plan
	if err := protojson.Unmarshal([]byte(plans.SamplePlan), &sample); err != nil {
		t.Fatal(err)
	}
	harness.Must(t, baremetalv1.NewPlanServiceClient(c.Conn()).CreatePlan, &baremetalv1.CreatePlanRequest{Plan: &sample})
	planExamples(t, one, two, place)
}

func customerExamples(t *testing.T, c *customer.Client, place func(context.Context, ...string)) {
	ctx := t.Context()
	if err := c.Import(ctx, 120); err != nil { // which no client of the design would page through
		t.Fatalf("import: %v", err)
	}
	place(ctx, "machine-1", "machine-2", "machine-3")
	for name, run := range map[string]func() error{
		"labels alone": func() error { return c.Relabel(ctx, "machine-1") },
	} {
		if err := run(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := c.Example1(ctx, "machine-1"); err != nil {
		t.Fatalf("example 1: %v", err)
	}
	if err := c.Example2(ctx, "machine-2"); err != nil {
		t.Fatalf("example 2: %v", err)
	}
	if err := c.Example3(ctx, "machine-3", "machine-1"); err != nil {
		t.Fatalf("example 3: %v", err)
	}
	all, err := c.ListOperations(ctx)
	if err != nil || len(all) == 0 {
		t.Fatalf("list operations: %d, %v", len(all), err)
	}
	if err := c.Errors(ctx, "machine-1", all[len(all)-1].GetOperationId()); err != nil {
		t.Errorf("errors: %v", err)
	}
}

func planExamples(t *testing.T, operator *customer.Client, c *plans.Client, place func(context.Context, ...string)) {
	ctx := t.Context()
	if err := c.Inventory(ctx); err != nil {
		t.Fatalf("inventory: %v", err)
	}
	if err := c.Plans(ctx); err != nil {
		t.Fatalf("plans: %v", err)
	}
	place(ctx, "m-123")
	op, err := operator.EnterMaintenance(ctx, "m-123", "enter")
	if err := operator.Finish(ctx, op, err); err != nil {
		t.Fatalf("enter maintenance: %v", err)
	}
	// No image is named anywhere but in the controller's configuration.
	repave := &plans.StartRunRequest{RequestId: "req-456", MachineId: "m-123", Type: "REPAVE"}
	run, err := c.Observe(ctx, repave)
	if err != nil || run.GetPhase() != plans.Run_SUCCEEDED {
		t.Fatalf("trigger and observe: %v, %v", run, err)
	}
	for _, s := range run.GetSteps() {
		if s.GetState() != plans.StepStatus_SUCCEEDED || s.GetStartedAt() == nil || s.GetFinishedAt() == nil {
			t.Errorf("step %v", s)
		}
	}
	if err := c.Retry(ctx, repave, run); err != nil {
		t.Errorf("idempotent retry: %v", err)
	}
	ticks := time.NewTicker(100 * time.Millisecond)
	defer ticks.Stop()
	polled, err := c.Poll(ctx, &plans.StartRunRequest{RequestId: "req-457", MachineId: "m-123", Type: "REBOOT"}, ticks.C)
	if err != nil || polled.GetPhase() != plans.Run_SUCCEEDED {
		t.Errorf("poll for completion: %v, %v", polled, err)
	}
	if err := c.Newest(ctx, "m-123", "req-457", "req-456", "enter"); err != nil {
		t.Errorf("list of runs: %v", err)
	}
	if err := c.Errors(ctx, "machine-1"); err != nil {
		t.Errorf("errors: %v", err)
	}
}

// TestTheStrangerKnowsNothingButTheAPI holds that the designs' clients are built on nothing of this tree.
func TestTheStrangerKnowsNothingButTheAPI(t *testing.T) {
	files, err := filepath.Glob("../seedclients/*/*.go")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if path := strings.Trim(i.Path.Value, `"`); strings.HasPrefix(path, "github.com/ingot-metal/ingot/") {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}
