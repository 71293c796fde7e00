package auth_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// machines answers by machine id: "ok", "fail", "leak" (an error that repeats the context), "panic".
type machines struct {
	baremetalv1.UnimplementedMachineServiceServer
}

func (machines) GetMachine(ctx context.Context, r *baremetalv1.GetMachineRequest) (*baremetalv1.Machine, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get("authorization")) > 0 {
		return nil, errors.New("the handler sees the authorization metadata")
	}
	caller, ok := call.Caller(ctx)
	if !ok {
		return nil, errors.New("no caller")
	}
	switch r.GetMachineId() {
	case "fail":
		return nil, failure.NotFound("MACHINE_NOT_FOUND", "no machine fail")
	case "leak":
		return nil, fmt.Errorf("unexpected: %+v", ctx)
	case "panic":
		panic(ctx)
	}
	return &baremetalv1.Machine{MachineId: caller.Name + "/" + caller.Scope.String()}, nil
}

func (machines) RebootMachine(context.Context, *baremetalv1.RebootMachineRequest) (*baremetalv1.Operation, error) {
	return &baremetalv1.Operation{}, nil
}

// operations streams by machine filter: "wait" follows quietly, "flood" sends as fast as it can, "panic" panics.
type operations struct {
	baremetalv1.UnimplementedOperationServiceServer
	started chan struct{}
}

func (o operations) WatchOperations(
	r *baremetalv1.WatchOperationsRequest, ss grpc.ServerStreamingServer[baremetalv1.OperationEvent],
) error {
	if err := ss.Send(&baremetalv1.OperationEvent{}); err != nil {
		return err
	}
	o.started <- struct{}{}
	switch r.GetFilter() {
	case "panic":
		panic(ss.Context())
	case "flood":
		for {
			if err := ss.Send(&baremetalv1.OperationEvent{Message: strings.Repeat("x", 1<<16)}); err != nil {
				return err
			}
		}
	}
	<-ss.Context().Done()
	return ss.Context().Err()
}

type frontpage struct {
	conn    *grpc.ClientConn
	tokens  *auth.Tokens
	path    string
	secrets map[string]string
	log     *testkit.Buffer
	started chan struct{}
}

// newFrontpage serves with a token for each scope and the interceptors in the order of the controller.
func newFrontpage(t *testing.T) *frontpage {
	f := &frontpage{
		path: filepath.Join(t.TempDir(), "tokens"), secrets: map[string]string{},
		log: &testkit.Buffer{}, started: make(chan struct{}, 10),
	}
	for name, scope := range map[string]access.Scope{"reader": access.ScopeRead, "operator": access.ScopeOperate,
		"boss": access.ScopeAdmin} {
		secret, err := auth.AddToken(f.path, name, scope)
		if err != nil {
			t.Fatal(err)
		}
		f.secrets[name] = secret
	}
	var err error
	logger := slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if f.tokens, err = auth.OpenTokens(f.path, logger); err != nil {
		t.Fatal(err)
	}
	guard := auth.NewGuard(auth.GuardConfig{Listener: auth.Frontpage, Tokens: f.tokens})
	f.conn = serve(t, logger, guard, false, func(s *grpc.Server) {
		baremetalv1.RegisterMachineServiceServer(s, machines{})
		baremetalv1.RegisterOperationServiceServer(s, operations{started: f.started})
	})
	return f
}

// as returns a context with the token; one that is no name of a token is sent as it is.
func (f *frontpage) as(t *testing.T, who string) context.Context {
	if secret, ok := f.secrets[who]; ok {
		who = "Bearer " + secret
	}
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", who)
}

func (f *frontpage) get(ctx context.Context, id string) (*baremetalv1.Machine, error) {
	return baremetalv1.NewMachineServiceClient(f.conn).GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: id})
}

func (f *frontpage) watch(t *testing.T, who, filter string) grpc.ServerStreamingClient[baremetalv1.OperationEvent] {
	t.Helper()
	stream, err := baremetalv1.NewOperationServiceClient(f.conn).
		WatchOperations(f.as(t, who), &baremetalv1.WatchOperationsRequest{Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	<-f.started
	return stream
}

// keepOnly rewrites the token file with the lines of these names, and reloads.
func (f *frontpage) keepOnly(t *testing.T, names ...string) {
	t.Helper()
	var file string
	for _, name := range names {
		name, scope, _ := strings.Cut(name, ":")
		file += fmt.Sprintf("%s %s %s\n", name, scope, auth.HashToken(f.secrets[name]))
	}
	if err := os.WriteFile(f.path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.tokens.Reload(); err != nil {
		t.Fatal(err)
	}
}

func wantReason(t *testing.T, what string, err error, code codes.Code, reason string) {
	t.Helper()
	if status.Code(err) != code || failure.ReasonOf(err) != reason {
		t.Errorf("%s: %v with %q, want %v with %q", what, err, failure.ReasonOf(err), code, reason)
	}
}

func TestCallers(t *testing.T) {
	f := newFrontpage(t)
	for who, want := range map[string]string{"reader": "reader/read", "operator": "operator/operate",
		"boss": "boss/admin"} {
		if m, err := f.get(f.as(t, who), "ok"); err != nil || m.GetMachineId() != want {
			t.Errorf("%s is %q, %v", who, m.GetMachineId(), err)
		}
	}
	if _, err := f.get(f.as(t, "bearer "+f.secrets["reader"]), "ok"); err != nil {
		t.Errorf("a lower-case scheme: %v", err)
	}
	_, err := f.get(t.Context(), "ok")
	wantReason(t, "no metadata", err, codes.Unauthenticated, "BEARER_MISSING")
	_, err = f.get(f.as(t, "Basic dXNlcjpwYXNz"), "ok")
	wantReason(t, "another scheme", err, codes.Unauthenticated, "BEARER_MISSING")
	for _, bad := range []string{"Bearer ", "Bearer", "Bearer ingotb_unknown", f.secrets["reader"] + "x"} {
		_, err = f.get(f.as(t, bad), "ok")
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%q: %v", bad, err)
		}
	}
	_, err = f.get(metadata.AppendToOutgoingContext(f.as(t, "reader"), "authorization", "Bearer x"), "ok")
	wantReason(t, "two tokens", err, codes.Unauthenticated, "BEARER_INVALID")
	// The hash of a token is no token.
	_, err = f.get(f.as(t, "Bearer "+auth.HashToken(f.secrets["boss"])), "ok")
	wantReason(t, "the hash", err, codes.Unauthenticated, "BEARER_INVALID")
}

func TestScopes(t *testing.T) {
	f := newFrontpage(t)
	_, err := baremetalv1.NewMachineServiceClient(f.conn).RebootMachine(f.as(t, "reader"),
		&baremetalv1.RebootMachineRequest{})
	wantReason(t, "a reader reboots", err, codes.PermissionDenied, "SCOPE_TOO_SMALL")
	if meta := failure.From(err).Metadata; meta["required_scope"] != "operate" || meta["scope"] != "read" {
		t.Errorf("metadata %v", meta)
	}
	_, err = baremetalv1.NewMachineServiceClient(f.conn).RebootMachine(f.as(t, "boss"),
		&baremetalv1.RebootMachineRequest{})
	if err != nil {
		t.Errorf("an admin reboots: %v", err)
	}
	stream, err := baremetalv1.NewOperationServiceClient(f.conn).WatchOperations(t.Context(),
		&baremetalv1.WatchOperationsRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	wantReason(t, "a stream without a token", err, codes.Unauthenticated, "BEARER_MISSING")
}

func TestReloadKeepsStreamsWhoseTokenStays(t *testing.T) {
	f := newFrontpage(t)
	kept, gone, smaller := f.watch(t, "reader", "wait"), f.watch(t, "operator", "wait"), f.watch(t, "boss", "wait")
	started := time.Now()
	f.keepOnly(t, "reader:read", "boss:read")
	_, err := gone.Recv()
	wantReason(t, "the removed token's stream", err, codes.Unauthenticated, "BEARER_INVALID")
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("it took %v to end", took)
	}
	ended := make(chan error, 2)
	for _, s := range []grpc.ServerStreamingClient[baremetalv1.OperationEvent]{kept, smaller} {
		go func() {
			_, err := s.Recv()
			ended <- err
		}()
	}
	select {
	case err := <-ended:
		t.Errorf("a stream whose token stayed ended: %v", err)
	case <-time.After(700 * time.Millisecond): // longer than the grace of a cut
	}
	_, err = f.get(f.as(t, "operator"), "ok")
	wantReason(t, "the removed token", err, codes.Unauthenticated, "BEARER_INVALID")
}

func TestReloadEndsAStreamStuckInSending(t *testing.T) {
	f := newFrontpage(t)
	stream := f.watch(t, "operator", "flood") // we don't read, so the window fills
	started := time.Now()
	f.keepOnly(t, "reader:read")
	var err error
	for err == nil {
		_, err = stream.Recv()
	}
	wantReason(t, "the stream", err, codes.Unauthenticated, "BEARER_INVALID")
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// TestNoTokenInTheLog drives every failure with a marked token through the real interceptors. It reads the whole log,
// which does not even redact.
func TestNoTokenInTheLog(t *testing.T) {
	f := newFrontpage(t)
	const marked = "ingotb_MARKED-unknown-0123456789"
	for _, id := range []string{"ok", "fail", "leak", "panic"} {
		_, err := f.get(f.as(t, "reader"), id)
		_, err2 := f.get(f.as(t, "Bearer "+marked), id)
		_, err3 := f.get(f.as(t, marked), id)
		for _, err := range []error{err, err2, err3} {
			if text := status.Convert(err).Proto().String(); strings.Contains(text, "ingotb_") {
				t.Errorf("the client of %s sees %s", id, text)
			}
		}
	}
	if _, err := f.watch(t, "reader", "panic").Recv(); status.Code(err) != codes.Internal {
		t.Errorf("a panic in a stream: %v", err)
	}
	log := f.log.String()
	if strings.Contains(log, "ingotb_") || strings.Contains(log, "MARKED") {
		t.Errorf("a token is in the log:\n%s", log)
	}
	// What would make this test blind: a log without the errors and panics.
	for _, want := range []string{"panic:", "unexpected:", "BEARER_INVALID", "MACHINE_NOT_FOUND", "caller=reader",
		"task "} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is not in the log:\n%s", want, log)
		}
	}
}
