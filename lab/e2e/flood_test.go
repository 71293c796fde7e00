package e2e

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestAFloodLeavesOthersAlone: one client calls over many connections as fast as it can, by gRPC and by REST, and is
// told to wait; another one, with a call at a time, is never refused.
func TestAFloodLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{Configure: func(cfg *config.Config) {
		cfg.Listen.REST = "127.0.0.1:0"
		cfg.Clients.Running, cfg.Clients.WaitingPerClient, cfg.Clients.Waiting = 4, 20, 40
		cfg.Clients.WriteRate, cfg.Clients.WriteBurst = 1, 2
	}})
	m := c.Register(&baremetalv1.Machine{})
	secret, err := auth.AddToken(c.TokensFile(), "flood", auth.ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Controller().Reload(); err != nil {
		t.Fatal(err)
	}
	flood := c.WithToken(secret)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	g, _ := task.New(ctx)
	var served, overloaded, other atomic.Int64
	for range 4 {
		conn, err := flood.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		machines := baremetalv1.NewMachineServiceClient(conn)
		for range 25 {
			g.Go("flood", func(ctx context.Context) error {
				for ctx.Err() == nil {
					_, err := machines.ListMachines(ctx, &baremetalv1.ListMachinesRequest{})
					switch {
					case err == nil:
						served.Add(1)
					case harness.HasReason(err, "CONTROLLER_OVERLOADED") && failure.From(err).RetryAfter > 0:
						overloaded.Add(1)
					case ctx.Err() == nil && status.Code(err) != codes.Canceled:
						other.Add(1)
						t.Errorf("the flood: %v", err)
						return nil
					}
				}
				return nil
			})
		}
	}
	for range 30 {
		if _, err := c.Machines().GetMachine(t.Context(), &baremetalv1.GetMachineRequest{MachineId: m.GetMachineId()}); err != nil {
			t.Fatalf("another client: %v", err)
		}
	}
	stop()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if served.Load() == 0 || overloaded.Load() == 0 || other.Load() > 0 {
		t.Errorf("the flood: %d served, %d refused as too many, %d otherwise", served.Load(), overloaded.Load(), other.Load())
	}

	// Its writes are counted, whichever way they come.
	rest := newCurl(t, c)
	rest.token = secret
	codesSeen := map[int]int{}
	for range 4 {
		resp := rest.open("POST", "/machines/"+m.GetMachineId()+"/reboot", `{"request_id": "r"}`)
		if resp.StatusCode == http.StatusTooManyRequests {
			if wait, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || wait < 1 {
				t.Errorf("Retry-After: %q", resp.Header.Get("Retry-After"))
			}
		}
		codesSeen[resp.StatusCode]++
		resp.Body.Close()
	}
	if codesSeen[http.StatusTooManyRequests] == 0 {
		t.Errorf("writes by REST: %v", codesSeen)
	}
	_, err = flood.Machines().RebootMachine(t.Context(), &baremetalv1.RebootMachineRequest{MachineId: m.GetMachineId(), RequestId: "r"})
	if !harness.HasReason(err, "RATE_LIMITED") {
		t.Errorf("the next write by gRPC: %v", err)
	}
}
