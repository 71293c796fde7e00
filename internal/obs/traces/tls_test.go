package traces_test

import (
	"context"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/ingot-metal/ingot/internal/obs/traces"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// secured takes spans over TLS, and records the header of each batch.
type secured struct {
	collector.UnimplementedTraceServiceServer
	keys chan string
}

// Export implements the service.
func (s *secured) Export(
	ctx context.Context, _ *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	key := ""
	if values := metadata.ValueFromIncomingContext(ctx, "api-key"); len(values) > 0 {
		key = values[0]
	}
	s.keys <- key
	return &collector.ExportTraceServiceResponse{}, nil
}

// A receiver is verified by the authorities of the configuration, and one that they do not know gets nothing.
func TestReceiverIsVerified(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=opaque")
	web := httptest.NewTLSServer(nil) // for its certificate, which is its own authority
	t.Cleanup(web.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	receiver := &secured{keys: make(chan string, 10)}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&web.TLS.Certificates[0])))
	collector.RegisterTraceServiceServer(server, receiver)
	task.Background("receiver of traces", func() {
		_ = server.Serve(l) // ends with the test
	})
	t.Cleanup(server.Stop)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	send := func(c traces.Config) {
		t.Helper()
		c.OTLPEndpoint, c.SampleRatio = l.Addr().String(), 1
		tr, err := traces.New(c, traces.Service{Name: "test", Log: testkit.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		tr.Record(traces.RootPlace("op-1"), traces.Span{Name: traces.Operation, Start: now, End: now})
		tr.Close()
	}
	send(traces.Config{})
	if len(receiver.keys) != 0 {
		t.Error("a receiver that the system's authorities do not know was sent a span")
	}
	for try := 0; len(receiver.keys) == 0; try++ {
		if try == 10 {
			t.Fatal("the receiver got nothing")
		}
		send(traces.Config{CAFile: file}) // its end waits for a second, which on a busy machine may be too short
	}
	if key := <-receiver.keys; key != "opaque" {
		t.Errorf("the header is %q", key)
	}
}
