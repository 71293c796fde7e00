package client_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
)

// failing is a server whose calls fail the first time.
type failing struct {
	mu    sync.Mutex
	code  codes.Code
	calls map[string]int
}

func (f *failing) handle(_ any, s grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(s)
	if err := s.RecvMsg(&emptypb.Empty{}); err != nil { // a client takes an answer to what it has not sent for an end
		return err
	}
	f.mu.Lock()
	f.calls[name]++
	n := f.calls[name]
	f.mu.Unlock()
	if n == 1 {
		return status.Error(f.code, "the first time")
	}
	return s.SendMsg(&emptypb.Empty{})
}

func (f *failing) serve(t *testing.T) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.UnknownServiceHandler(f.handle))
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///failing", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithDefaultServiceConfig(client.ServiceConfig()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return conn
}

// TestServiceConfigRepeats: gRPC itself sends again what may be sent twice, and nothing else.
func TestServiceConfigRepeats(t *testing.T) {
	t.Parallel()
	f := &failing{code: codes.Unavailable, calls: map[string]int{}}
	conn := f.serve(t)
	var all sync.WaitGroup
	methods := 0
	own := baremetalv1.File_baremetal_v1_machine_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(own, func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				methods++
				all.Go(func() { f.sent(t, conn, "/"+string(s.FullName())+"/"+string(m.Name()), m) })
			}
		}
		return true
	})
	all.Wait()
	if methods < 140 {
		t.Errorf("%d methods were called", methods)
	}
}

// sent makes a call, and checks how often it has been sent.
func (f *failing) sent(t *testing.T, conn *grpc.ClientConn, name string, m protoreflect.MethodDescriptor) {
	want := 1
	if client.Repeatable(name) && !m.IsStreamingClient() {
		want = 2
	}
	err := call(t.Context(), conn, name, m)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.calls[name]; n != want || (err == nil) != (want == 2) {
		t.Errorf("%s was sent %d times, want %d: %v", name, n, want, err)
	}
}

// call makes one call, as code that is generated for the method does.
func call(ctx context.Context, conn *grpc.ClientConn, name string, m protoreflect.MethodDescriptor) error {
	if !m.IsStreamingServer() && !m.IsStreamingClient() {
		return conn.Invoke(ctx, name, &emptypb.Empty{}, &emptypb.Empty{})
	}
	desc := &grpc.StreamDesc{ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient()}
	s, err := conn.NewStream(ctx, desc, name)
	if err != nil {
		return err
	}
	_ = s.SendMsg(&emptypb.Empty{}) // its error is RecvMsg's
	_ = s.CloseSend()
	return s.RecvMsg(&emptypb.Empty{})
}

// TestServiceConfigKnowsReadsFromTheRest by name, and other codes than UNAVAILABLE are for the caller.
func TestServiceConfigKnowsReadsFromTheRest(t *testing.T) {
	t.Parallel()
	config := client.ServiceConfig()
	for method, want := range map[string]bool{
		"GetMachine": true, "RebootMachine": true, "WatchMachines": true, "IssueBootstrapToken": false,
		"CreateAPIToken": false, "UploadImage": false, "ResumeRollout": false,
	} {
		if strings.Contains(config, `"method":"`+method+`"`) != want {
			t.Errorf("%s is listed: %t", method, !want)
		}
	}
	f := &failing{code: codes.ResourceExhausted, calls: map[string]int{}}
	_, err := baremetalv1.NewMachineServiceClient(f.serve(t)).GetMachine(t.Context(), &baremetalv1.GetMachineRequest{})
	n := f.calls[baremetalv1.MachineService_GetMachine_FullMethodName]
	if n != 1 || status.Code(err) != codes.ResourceExhausted {
		t.Errorf("sent %d times: %v", n, err)
	}
}
