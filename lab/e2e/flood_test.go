package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestAFloodLeavesOthersAlone: one client calls over many connections as fast as it can, by gRPC and by REST, and must
// wait. Another one, with a call at a time, is never refused.
func TestAFloodLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{Configure: func(cfg *config.Config) {
		cfg.Listen.REST = "127.0.0.1:0"
		cfg.Clients.Running, cfg.Clients.WaitingPerClient, cfg.Clients.Waiting = 4, 20, 40
		cfg.Clients.WriteRate, cfg.Clients.WriteBurst = 1, 1
	}})
	m := c.Register(&baremetalv1.Machine{})
	secret, err := auth.AddToken(c.TokensFile(), "flood", access.ScopeAdmin)
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
		if _, err := c.Machines().GetMachine(t.Context(),
			&baremetalv1.GetMachineRequest{MachineId: m.GetMachineId()}); err != nil {
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

	// Its writes are counted, whichever way they come. The first ones may be slow, behind the rest of the flood.
	rest := newCurl(t, c)
	rest.token = secret
	codesSeen := map[int]int{}
	for n := 0; n < 60 && codesSeen[http.StatusTooManyRequests] == 0; n++ {
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
	for n := 0; n < 60 && !harness.HasReason(err, "RATE_LIMITED"); n++ {
		_, err = flood.Machines().RebootMachine(t.Context(),
			&baremetalv1.RebootMachineRequest{MachineId: m.GetMachineId(), RequestId: "r"})
	}
	if !harness.HasReason(err, "RATE_LIMITED") {
		t.Errorf("the next write by gRPC: %v", err)
	}
}

// TestStrangersCostNoMemory: clients without a token begin calls with large messages and never end them. They use
// methods that need a token and those that need none. It is not parallel, since it reads the memory of the process.
func TestStrangersCostNoMemory(t *testing.T) {
	const calls, size = 200, 1 << 20
	c := harness.New(t, harness.Options{})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Controller().RootPEM())
	before := heap()
	for _, method := range []string{"/baremetal.v1.MachineService/ListMachines", "/grpc.health.v1.Health/Check"} {
		tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots,
			MinVersion: tls.VersionTLS13}}
		ctx, stop := context.WithCancel(t.Context())
		g, _ := task.New(ctx)
		var settled, answered atomic.Int64
		for range calls {
			g.Go("stranger", func(ctx context.Context) error {
				body := &halfMessage{ctx: ctx, header: []byte{0, 0, 0x20, 0, 0}, left: size, sent: func() { settled.Add(1) }}
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.Controller().Addresses().Frontpage+method,
					body)
				if err != nil {
					return err
				}
				req.Header.Set("Content-Type", "application/grpc")
				resp, err := tr.RoundTrip(req)
				if err == nil {
					_ = resp.Body.Close()
				}
				answered.Add(1)
				return nil // refused, cut off or stopped: each is well
			})
		}
		testkit.Eventually(t, rig.Soon, func() bool { return settled.Load()+answered.Load() >= calls },
			"the calls are neither begun nor refused")
		if now := heap(); now > before+64<<20 {
			t.Errorf("%s: %d calls without a token hold %d MiB", method, calls, (now-before)>>20)
		}
		if _, err := c.Machines().ListMachines(t.Context(), &baremetalv1.ListMachinesRequest{}); err != nil {
			t.Errorf("%s: a client with a token meanwhile: %v", method, err)
		}
		stop()
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		tr.CloseIdleConnections()
	}
}

// halfMessage is a message of which half is sent.
type halfMessage struct {
	ctx    context.Context //nolint:containedctx // a reader gets none
	header []byte
	left   int
	sent   func()
}

func (h *halfMessage) Read(b []byte) (int, error) {
	switch {
	case len(h.header) > 0:
		n := copy(b, h.header)
		h.header = h.header[n:]
		return n, nil
	case h.left > 0:
		n := min(len(b), h.left)
		h.left -= n
		return n, nil
	}
	h.sent()
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
