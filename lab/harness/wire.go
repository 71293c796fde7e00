package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/agent/state"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/internal/task"
)

// Wire stands between agents and the controller and reads along: it can drop, repeat and delay single messages of the
// command stream. To the agent it has a certificate of the controller's CA, to the controller the agent's own.
type Wire struct {
	c      *Cluster
	server *grpc.Server
	addr   string

	mu    sync.Mutex
	peers map[string]*peerHooks // by machine id
}

// Verdict is how often a message is passed on, and after which wait.
type Verdict struct {
	Copies int
	Delay  time.Duration
}

// Pass is the verdict over an ordinary message.
var Pass = Verdict{Copies: 1}

// Hooks judge the messages of one machine's command stream. A nil hook passes everything. They are called from two
// goroutines.
type Hooks struct {
	FromAgent      func(*fleetv1.AgentMessage) Verdict
	FromController func(*fleetv1.ControllerMessage) Verdict
}

type peerHooks struct {
	dir   string
	hooks Hooks
}

// NewWire opens a wire that ends with the test. The controller must have run: its CA is taken from its directory.
func NewWire(t testing.TB, c *Cluster) *Wire {
	t.Helper()
	authority, err := ca.New(ca.Config{Dir: filepath.Join(c.Data, "ca")})
	if err != nil {
		t.Fatalf("open the CA: %v", err)
	}
	cert, err := authority.ServerCert(context.Background(), []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatalf("make certificate: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("open wire: %v", err)
	}
	w := &Wire{c: c, addr: l.Addr().String(), peers: map[string]*peerHooks{}}
	w.server = grpc.NewServer(grpc.ForceServerCodecV2(frameCodec{}), grpc.UnknownServiceHandler(w.serve),
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"},
			ClientAuth: tls.RequestClientCert,
		})))
	done := make(chan struct{})
	task.Background("wire", func() {
		defer close(done)
		_ = w.server.Serve(l) // ends with Stop
	})
	t.Cleanup(func() {
		w.server.Stop()
		<-done
	})
	return w
}

// Address is what an agent dials. The name in front of it identifies the dialling machine to the wire.
func (w *Wire) Address() string { return w.addr }

// Listen sets the hooks for a machine, whose agent must use Address.
func (w *Wire) Listen(m *Machine, h Hooks) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peers[m.ID] = &peerHooks{dir: m.StateDir, hooks: h}
}

// peer finds whose certificate was shown, by its bytes.
func (w *Wire) peer(ctx context.Context) (*peerHooks, state.Credentials, error) {
	shown, err := peerCertificate(ctx)
	if err != nil {
		return nil, state.Credentials{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.peers {
		creds, err := state.Dir(p.dir).Credentials()
		if err == nil && creds.Leaf().Equal(shown) {
			return p, creds, nil
		}
	}
	return nil, state.Credentials{}, errors.New("nobody listens for this agent")
}

func (w *Wire) serve(_ any, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	p, creds, err := w.peer(down.Context())
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	roots, err := state.Dir(p.dir).Trust()
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	conn, err := grpc.NewClient("passthrough:///"+w.c.Fleet.Address(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{creds.TLS()}, ServerName: "127.0.0.1",
		})), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frameCodec{})))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	judge := w.judges(p, method)
	ended := make(chan error, 2)
	task.Background("wire up", func() {
		err := pump(ctx, down.RecvMsg, up.SendMsg, judge.agent)
		_ = up.CloseSend() // the other direction reports the error
		ended <- err
	})
	task.Background("wire down", func() { ended <- pump(ctx, up.RecvMsg, down.SendMsg, judge.controller) })
	return <-ended
}

type judges struct{ agent, controller func([]byte) Verdict }

func (w *Wire) judges(p *peerHooks, method string) judges {
	pass := func([]byte) Verdict { return Pass }
	j := judges{pass, pass}
	if !strings.HasSuffix(method, "/Commands") {
		return j
	}
	if h := p.hooks.FromAgent; h != nil {
		j.agent = func(b []byte) Verdict {
			m := &fleetv1.AgentMessage{}
			if proto.Unmarshal(b, m) != nil || m.GetHello() != nil {
				return Pass
			}
			return h(m)
		}
	}
	if h := p.hooks.FromController; h != nil {
		j.controller = func(b []byte) Verdict {
			m := &fleetv1.ControllerMessage{}
			if proto.Unmarshal(b, m) != nil || m.GetWelcome() != nil {
				return Pass
			}
			return h(m)
		}
	}
	return j
}

// pump passes messages on in order; a delayed one delays those behind it, as on a real connection.
func pump(ctx context.Context, recv, send func(any) error, judge func([]byte) Verdict) error {
	for {
		f := &frame{}
		if err := recv(f); err != nil {
			return err
		}
		v := judge(f.b)
		if v.Delay > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(v.Delay):
			}
		}
		for range v.Copies {
			if err := send(f); err != nil {
				return err
			}
		}
	}
}

// frame is a message that is not looked into.
type frame struct{ b []byte }

type frameCodec struct{}

var _ encoding.CodecV2 = frameCodec{}

func (frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("marshal %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(f.b)}, nil
}

func (frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("unmarshal into %T", v)
	}
	f.b = data.Materialize()
	return nil
}

func (frameCodec) Name() string { return "proto" }
