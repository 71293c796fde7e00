package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/ingot-metal/ingot/controller/api/gateway"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// double stands in for every service: it keeps the requests and returns the set answers.
type double struct {
	mu   sync.Mutex
	seen proto.Message
	// answers are sent in this order, then err if there is one.
	answers []proto.Message
	err     error
	// all has the messages that follow the first one of a client's stream; unended reports that the stream broke off.
	all     []proto.Message
	drains  bool
	unended bool
	// begun reports that a call has come.
	begun atomic.Bool
	// caller is whom the guard has let in.
	caller access.Caller
	md     metadata.MD
}

func (d *double) tell(err error, answers ...proto.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen, d.answers, d.err = nil, answers, err
}

func (d *double) last() proto.Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen
}

// handle serves any method, unary ones too: on the wire they are streams of one message.
func (d *double) handle(_ any, ss grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(ss)
	m, err := methodOf(name)
	if err != nil {
		return err
	}
	in := newMessage(m.Input())
	if err := ss.RecvMsg(in); err != nil {
		return err
	}
	d.begun.Store(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen, d.all, d.unended = in, nil, false
	for d.drains {
		more := newMessage(m.Input())
		if err := ss.RecvMsg(more); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			d.unended = true
			return err
		}
		d.all = append(d.all, more)
	}
	d.caller, _ = call.Caller(ss.Context())
	d.md, _ = metadata.FromIncomingContext(ss.Context())
	for _, a := range d.answers {
		if err := ss.SendMsg(a); err != nil {
			return err
		}
	}
	return d.err
}

func methodOf(full string) (protoreflect.MethodDescriptor, error) {
	service, name := filepath.Split(full[1:])
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(filepath.Clean(service)))
	if err != nil {
		return nil, err
	}
	return d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name)), nil
}

func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err)
	}
	return t.New().Interface()
}

// rig is a gateway before a double, with the interceptors that the frontpage has.
type rig struct {
	t      *testing.T
	double *double
	conn   *grpc.ClientConn
	url    string
	client *http.Client
	secret string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigWith(t, gateway.Config{})
}

func newRigWith(t *testing.T, c gateway.Config) *rig {
	t.Helper()
	r := &rig{t: t, double: &double{}}
	tokens := filepath.Join(t.TempDir(), "tokens")
	var err error
	if r.secret, err = auth.AddToken(tokens, "tester", access.ScopeAdmin); err != nil {
		t.Fatal(err)
	}
	open, err := auth.OpenTokens(tokens, testkit.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	guard := auth.NewGuard(auth.GuardConfig{Listener: auth.Frontpage, Tokens: open})
	errs := failure.Interceptor{Logger: testkit.Logger(t)}
	server := grpc.NewServer(grpc.UnknownServiceHandler(r.double.handle), grpc.MaxRecvMsgSize(64<<20),
		grpc.ChainStreamInterceptor(errs.Stream(), guard.Stream()))
	pipe := gateway.NewPipe()
	served := make(chan error, 1)
	go func() { served <- server.Serve(pipe) }()
	r.conn, err = grpc.NewClient("passthrough:///double", grpc.WithContextDialer(pipe.Dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	c.Conn, c.Logger = r.conn, testkit.Logger(t)
	gateway, err := gateway.New(c)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewTLSServer(gateway)
	r.url, r.client = front.URL, front.Client()
	t.Cleanup(func() {
		front.Close()
		r.conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return r
}

// serveForReal serves a gateway to the rig's services as the controller does.
func serveForReal(t *testing.T, r *rig, c gateway.Config, cert tls.Certificate) (address string, stop func()) {
	t.Helper()
	c.Conn, c.Logger = r.conn, testkit.Logger(t)
	gateway, err := gateway.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- gateway.Serve(ctx, l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13})
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-served; err != nil {
				t.Errorf("serve: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}
