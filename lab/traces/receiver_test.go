package traces

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/ingot-metal/ingot/internal/obs/traces"
	"github.com/ingot-metal/ingot/internal/task"
)

// received is a span with the sender that its resource names.
type received struct {
	*otlp.Span
	service, instance string
}

func (r received) attribute(key traces.Attribute) string {
	return valueOf(r.GetAttributes(), string(key))
}

func valueOf(list []*common.KeyValue, key string) string {
	for _, a := range list {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// receiver takes spans as a collector does.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	address string

	mu    sync.Mutex
	spans map[string][]received // by trace, hexadecimal
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{address: l.Addr().String(), spans: map[string][]received{}}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	done := make(chan struct{})
	task.Background("receiver of traces", func() {
		defer close(done)
		_ = server.Serve(l) // ends with the test
	})
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return r
}

// Export implements the service.
func (r *receiver) Export(
	_ context.Context, m *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range m.GetResourceSpans() {
		about := resource.GetResource().GetAttributes()
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				id := hex.EncodeToString(s.GetTraceId())
				r.spans[id] = append(r.spans[id], received{s, valueOf(about, "service.name"),
					valueOf(about, "service.instance.id")})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// of are the spans of a trace so far.
func (r *receiver) of(trace string) []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans[trace])
}

func (r *receiver) ofOperation(id string) []received { return r.of(traces.TraceOf(id).String()) }

// traces are the traces that there are.
func (r *receiver) traces() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.spans))
}

// named are the spans whose name is this, or begins with it and a space.
func named(all []received, name traces.Name) (out []received) {
	for _, s := range all {
		if s.GetName() == string(name) || len(s.GetName()) > len(name) && s.GetName()[:len(name)+1] == string(name)+" " {
			out = append(out, s)
		}
	}
	return out
}

// outline is for messages of failed tests.
func outline(all []received) string {
	out := ""
	for _, s := range all {
		out += fmt.Sprintf("\n%x below %x: %s of %s %s, %s", s.GetSpanId(), s.GetParentSpanId(), s.GetName(), s.service,
			s.instance, s.GetStatus().GetMessage())
	}
	return out
}
