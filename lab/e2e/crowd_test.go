package e2e

import (
	"context"
	"crypto/ecdsa"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

const crowd = 1000

// atOnce calls fn for each of n at the same time, over several connections.
func atOnce(n int, fn func(i int)) {
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			ready.Done()
			<-gate
			fn(i)
		}()
	}
	ready.Wait()
	close(gate)
	done.Wait()
}

func TestAThousandStartsWithOneRequestIDAreOneOperation(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	var clients [10]baremetalv1.MachineServiceClient
	for i := range clients {
		conn, err := c.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		clients[i] = baremetalv1.NewMachineServiceClient(conn)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	seen, errs := map[string]int{}, map[string]int{}
	begin := time.Now()
	atOnce(crowd, func(i int) {
		op, err := clients[i%len(clients)].RebootMachine(ctx,
			&baremetalv1.RebootMachineRequest{MachineId: m.ID, RequestId: "the-same", TimeoutSeconds: 30})
		for status.Code(err) == codes.ResourceExhausted { // too many at a time: to be repeated, as clients do
			<-time.After(time.Second)
			op, err = clients[i%len(clients)].RebootMachine(ctx,
				&baremetalv1.RebootMachineRequest{MachineId: m.ID, RequestId: "the-same", TimeoutSeconds: 30})
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs[err.Error()]++
			return
		}
		seen[op.GetOperationId()]++
	})
	t.Logf("%d calls in %v", crowd, time.Since(begin).Round(time.Millisecond))
	if len(errs) > 0 || len(seen) != 1 {
		t.Fatalf("operations %v, errors %v", seen, errs)
	}
	for id := range seen {
		rig.Ended(t, c.Wait(id, rig.Soon), rig.Succeeded, "")
	}
	h := m.WaitQuiet(rig.Soon)
	rig.Clean(t, h)
	if len(h.Operations) != 2 { // maintenance, and this one
		t.Errorf("%v", h)
	}
	_, err := harness.Call(t, c.Machines().RebootMachine,
		&baremetalv1.RebootMachineRequest{MachineId: m.ID, RequestId: "the-same", Mode: "force", TimeoutSeconds: 30})
	if !harness.HasReason(err, "REQUEST_ID_REUSED") {
		t.Errorf("the same request id with another body: %v", err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func enrollRequest(t testing.TB, token, secret, version string) *enrollv1.EnrollRequest {
	t.Helper()
	return enrollWith(t, newKey(t), token, secret, version)
}

func enrollWith(t testing.TB, key *ecdsa.PrivateKey, token, secret, version string) *enrollv1.EnrollRequest {
	t.Helper()
	csr, err := pki.NewCSR(key, "")
	if err != nil {
		t.Fatal(err)
	}
	return &enrollv1.EnrollRequest{TokenId: token, TokenSecret: secret, Csr: csr, Version: version}
}

func TestAThousandEnrolmentsWithOneTokenAreOneCertificate(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	machine := c.Register(&baremetalv1.Machine{})
	bundle, err := pki.ParseBundle(
		c.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{MachineId: machine.GetMachineId()}))
	if err != nil {
		t.Fatal(err)
	}
	requests := make([]*enrollv1.EnrollRequest, crowd)
	for i := range requests {
		requests[i] = enrollRequest(t, bundle.TokenID, bundle.Secret, "test")
	}
	var clients [10]enrollv1.EnrollmentServiceClient
	for i := range clients {
		clients[i] = c.EnrollClient()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	before := c.Controller().Signatures()
	var good, refused atomic.Int64
	var won atomic.Pointer[enrollv1.EnrollResponse]
	var winner atomic.Int64
	begin := time.Now()
	atOnce(crowd, func(i int) {
		answer, err := clients[i%len(clients)].Enroll(ctx, requests[i])
		switch {
		case err == nil:
			good.Add(1)
			won.Store(answer)
			winner.Store(int64(i))
		case status.Code(err) == codes.Unauthenticated:
			refused.Add(1)
		default:
			t.Errorf("enrol: %v", err)
		}
	})
	signed := c.Controller().Signatures() - before
	t.Logf("%d calls in %v: %d certificates, %d refused, %d signatures", crowd, time.Since(begin).Round(time.Millisecond),
		good.Load(), refused.Load(), signed)
	if good.Load() != 1 || refused.Load() != crowd-1 || signed != 1 {
		t.Fatal("want one certificate, and one signature")
	}
	// The answer may have been lost: the same key gets the same certificate again.
	again, err := clients[0].Enroll(ctx, requests[winner.Load()])
	if err != nil || !proto.Equal(again, won.Load()) {
		t.Errorf("the winner again: %v, the same answer: %v", err, proto.Equal(again, won.Load()))
	}
	if n := c.Controller().Signatures() - before; n != 1 {
		t.Errorf("%d signatures after a repeat", n)
	}
}

func TestBadTokensCannotBeToldApart(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	machine := c.Register(&baremetalv1.Machine{})
	used, err := pki.ParseBundle(c.IssueToken(&baremetalv1.IssueBootstrapTokenRequest{MachineId: machine.GetMachineId()}))
	if err != nil {
		t.Fatal(err)
	}
	client := c.EnrollClient()
	if _, err := harness.Call(t, client.Enroll, enrollRequest(t, used.TokenID, used.Secret, "test")); err != nil {
		t.Fatal(err)
	}
	answers := map[string]bool{}
	for _, r := range []*enrollv1.EnrollRequest{
		enrollRequest(t, used.TokenID, used.Secret, "test"), enrollRequest(t, used.TokenID, "wrong", "test"),
		enrollRequest(t, "t-unknown", "wrong", "test"),
	} {
		_, err := harness.Call(t, client.Enroll, r)
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("got %v", err)
		}
		answers[status.Convert(err).Message()] = true
	}
	if len(answers) != 1 {
		t.Errorf("%d different answers: %v", len(answers), answers)
	}
}

func TestTokensAreSwappedWithStreamsOpen(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	dials := m.Dials()
	watch, err := c.Operations().WatchOperations(t.Context(), &baremetalv1.WatchOperationsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Header(); err != nil { // the stream stands
		t.Fatal(err)
	}
	secret, err := auth.AddToken(c.TokensFile(), "other", access.ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	other := c.WithToken(secret)
	_, err = harness.Call(t, other.Machines().GetMachine, &baremetalv1.GetMachineRequest{MachineId: m.ID})
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a token before the reload: %v", err)
	}
	if err := c.Controller().Reload(); err != nil {
		t.Fatal(err)
	}
	rig.Maintenance(t, other, m.ID)
	watchEnd(t, watch)
	if m.Dials() != dials {
		t.Errorf("the agent's session was dropped")
	}
	// Without its token a stream ends: that is why it was taken away.
	removeToken(t, c.TokensFile(), "tester")
	if err := c.Controller().Reload(); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream of a removed token: %v", err)
	}
	_, err = harness.Call(t, c.Machines().GetMachine, &baremetalv1.GetMachineRequest{MachineId: m.ID})
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a removed token: %v", err)
	}
	if m.Dials() != dials {
		t.Errorf("the agent's session was dropped")
	}
	// A file with a mistake changes nothing.
	if err := os.WriteFile(c.TokensFile(), []byte("broken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Controller().Reload(); err == nil {
		t.Error("a broken file was taken")
	}
	if _, err := harness.Call(t, other.Machines().GetMachine,
		&baremetalv1.GetMachineRequest{MachineId: m.ID}); err != nil {
		t.Errorf("after a broken reload: %v", err)
	}
}

// watchEnd reads a watch until an operation has succeeded.
func watchEnd(t *testing.T, watch baremetalv1.OperationService_WatchOperationsClient) {
	t.Helper()
	for {
		e, err := watch.Recv()
		if err != nil {
			t.Fatalf("the stream was dropped: %v", err)
		}
		if e.GetSnapshot().GetPhase() == rig.Succeeded {
			return
		}
	}
}

// removeToken takes a line out of a token file.
func removeToken(t *testing.T, path, name string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, name+" ") {
			kept = append(kept, line)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(kept, "")), 0o600); err != nil {
		t.Fatal(err)
	}
}
