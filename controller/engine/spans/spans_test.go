package spans_test

import (
	"net"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/engine/spans"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/obs/traces"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// applied is the decision by which the result of a reboot ends its operation.
func applied() *operationstore.Applied {
	at := time.Now()
	c := &operation.Command{ID: "cmd-1", Kind: kind.Reboot, State: operation.Done, Attempt: 1, ExecutorID: "a-1",
		Outcome: operation.OutcomeSucceeded, SentAt: at, AckedAt: at, GrantedAt: at, FinishedAt: at}
	return &operationstore.Applied{
		OperationID: "op-1", MachineID: "m-1", Type: "REBOOT", Phase: operation.Succeeded, CreatedAt: at, FinishedAt: at,
		Command: c, Decision: operation.Decision{
			Changed: true, OpChanged: true, Commands: []*operation.Command{c},
			Notes: []operation.Note{{Kind: "step_succeeded", Step: "reboot"}, {Kind: "succeeded"}},
		},
	}
}

// Where traces are off, what every decision and every job passes through allocates nothing.
func TestOffCostsNothing(t *testing.T) {
	r, a := spans.New(nil, "c-1", clock.Real()), applied()
	if n := testing.AllocsPerRun(1000, func() {
		ctx, ended := r.Job(t.Context(), a.OperationID, 1)
		r.Applied(ctx, a, a.CreatedAt)
		ended(nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDecision(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }() // no process reads from it
	on, err := traces.New(traces.Config{OTLPEndpoint: l.Addr().String(), Insecure: true, SampleRatio: 1},
		traces.Service{Name: "test", Log: testkit.Logger(b)})
	if err != nil {
		b.Fatal(err)
	}
	defer on.Close()
	for name, tracer := range map[string]*traces.Tracer{"off": nil, "on": on} {
		b.Run(name, func(b *testing.B) {
			r, a := spans.New(tracer, "c-1", clock.Real()), applied()
			b.ReportAllocs()
			for b.Loop() {
				ctx, ended := r.Job(b.Context(), a.OperationID, 1)
				r.Applied(ctx, a, a.CreatedAt)
				ended(nil)
			}
		})
	}
}
