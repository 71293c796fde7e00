package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// callOf is the context of a call on the connection of an agent.
func callOf(ctx context.Context, agentID string) context.Context {
	leaf := &x509.Certificate{URIs: []*url.URL{pki.AgentURI(agentID)}}
	return peer.NewContext(ctx,
		&peer.Peer{AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}}})
}

type streamOf struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // as grpc's own
}

func (s streamOf) Context() context.Context    { return s.ctx }
func (s streamOf) SetHeader(metadata.MD) error { return nil }

// TestOneAgentHasFewCallsUnderWay: each call may hold a message, and one agent must not hold many; another agent has
// its own.
func TestOneAgentHasFewCallsUnderWay(t *testing.T) {
	t.Parallel()
	a := newAgentCalls(session.NewRegistry())
	greedy, other := ids.New(ids.Agent), ids.New(ids.Agent)
	begin := func(agent, method string) (context.CancelFunc, error) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := a.begin(callOf(ctx, agent), &tap.Info{FullMethodName: method})
		return cancel, err
	}
	var ends []context.CancelFunc
	for i := range hostCalls {
		end, err := begin(greedy, fleetv1.AgentService_SyncSite_FullMethodName)
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		ends = append(ends, end)
	}
	if _, err := begin(greedy, fleetv1.AgentService_FetchBlob_FullMethodName); status.Code(
		err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	if _, err := begin(other, fleetv1.AgentService_SyncSite_FullMethodName); err != nil {
		t.Errorf("another agent: %v", err)
	}
	ends[0]()
	testkit.Eventually(t, 30*time.Second, func() bool {
		_, err := begin(greedy, fleetv1.AgentService_SyncSite_FullMethodName)
		return err == nil
	}, "a call that has ended counts")
}

// TestSessionStreamsAreCountedUntilTheyEnd: they are few for each agent, and one that has ended makes room for the
// next, also when nothing behind the count was reached.
func TestSessionStreamsAreCountedUntilTheyEnd(t *testing.T) {
	t.Parallel()
	a := newAgentCalls(session.NewRegistry())
	method := fleetv1.AgentService_Commands_FullMethodName
	call := callOf(t.Context(), ids.New(ids.Agent))
	for i := range agentStreams {
		if _, err := a.begin(call, &tap.Info{FullMethodName: method}); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	if _, err := a.begin(call, &tap.Info{FullMethodName: method}); status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("one more: %v", err)
	}
	refused := func(any, grpc.ServerStream) error { return status.Error(codes.Unavailable, "the database is away") }
	if err := a.stream(nil, streamOf{ctx: call}, &grpc.StreamServerInfo{FullMethod: method},
		refused); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	if _, err := a.begin(call, &tap.Info{FullMethodName: method}); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
