package harness

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// Client speaks baremetal.v1 to whichever controller is behind an address. Calls that fail because a controller is
// away, or because a fault was injected, are repeated: that is what request ids are for.
type Client struct {
	t       testing.TB
	address string
	caFile  string
	token   string

	mu   sync.Mutex
	conn *grpc.ClientConn
}

// NewClient makes a client of a controller that the harness has not started.
func NewClient(t testing.TB, address, caFile, token string) *Client {
	return newClient(t, address, caFile, token)
}

func newClient(t testing.TB, address, caFile, token string) *Client {
	c := &Client{t: t, address: address, caFile: caFile, token: token}
	t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.conn != nil {
			c.conn.Close()
		}
	})
	return c
}

// WithToken is the same client with another bearer token.
func (c *Client) WithToken(token string) *Client { return newClient(c.t, c.address, c.caFile, token) }

// At is the same client of another address.
func (c *Client) At(address string) *Client { return newClient(c.t, address, c.caFile, c.token) }

// Token is the bearer token.
func (c *Client) Token() string { return c.token }

type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }

// Dial opens a connection of its own to the frontpage.
func (c *Client) Dial() (*grpc.ClientConn, error) {
	root, err := os.ReadFile(c.caFile)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(root) {
		return nil, errors.New("the CA file holds no certificate")
	}
	return grpc.NewClient("passthrough:///"+c.address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13})),
		grpc.WithPerRPCCredentials(bearer(c.token)), grpc.WithDisableRetry(),
		// As in docs/reference/api.md: a controller that stands still keeps its connections.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 2 * time.Second, Backoff: quick}))
}

// Conn is the shared connection.
func (c *Client) Conn() *grpc.ClientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		conn, err := c.Dial()
		if err != nil {
			c.t.Errorf("connect: %v", err)
			return nil
		}
		c.conn = conn
	}
	return c.conn
}

// Machines is the service.
func (c *Client) Machines() baremetalv1.MachineServiceClient {
	return baremetalv1.NewMachineServiceClient(c.Conn())
}

// Operations is the service.
func (c *Client) Operations() baremetalv1.OperationServiceClient {
	return baremetalv1.NewOperationServiceClient(c.Conn())
}

// Admin is the service.
func (c *Client) Admin() baremetalv1.AdminServiceClient {
	return baremetalv1.NewAdminServiceClient(c.Conn())
}

// CA is the service about the CA.
func (c *Client) CA() baremetalv1.AuthorityServiceClient {
	return baremetalv1.NewAuthorityServiceClient(c.Conn())
}

// Workflows is the service.
func (c *Client) Workflows() baremetalv1.WorkflowServiceClient {
	return baremetalv1.NewWorkflowServiceClient(c.Conn())
}

// Nodes is the service.
func (c *Client) Nodes() baremetalv1.NodeServiceClient {
	return baremetalv1.NewNodeServiceClient(c.Conn())
}

// patience is how long a call is repeated.
const patience = 60 * time.Second

// Call repeats a call while the controller is away or broken by an injected fault, and returns its last answer.
func Call[A, R any](t testing.TB, call func(context.Context, A, ...grpc.CallOption) (R, error), request A) (R, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		once, stop := context.WithTimeout(ctx, 10*time.Second)
		out, err := call(once, request)
		stop()
		switch status.Code(err) {
		case codes.Unavailable, codes.Internal, codes.Canceled, codes.DeadlineExceeded, codes.Unknown:
		default:
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Must is Call with any error fatal.
func Must[A, R any](t testing.TB, call func(context.Context, A, ...grpc.CallOption) (R, error), request A) R {
	t.Helper()
	out, err := Call(t, call, request)
	if err != nil {
		t.Fatalf("%T: %v", request, err)
	}
	return out
}

// Register makes a machine's record.
func (c *Client) Register(m *baremetalv1.Machine) *baremetalv1.Machine {
	c.t.Helper()
	if m.GetMachineId() == "" {
		m.MachineId = ids.New(ids.Machine)
	}
	return Must(c.t, c.Machines().RegisterMachine, &baremetalv1.RegisterMachineRequest{Machine: m})
}

// IssueToken returns a bootstrap token.
func (c *Client) IssueToken(r *baremetalv1.IssueBootstrapTokenRequest) string {
	c.t.Helper()
	return Must(c.t, c.Admin().IssueBootstrapToken, r).GetBundle()
}

// Machine reads a machine.
func (c *Client) Machine(id string) *baremetalv1.Machine {
	c.t.Helper()
	m, err := Call(c.t, c.Machines().GetMachine, &baremetalv1.GetMachineRequest{MachineId: id})
	if HasReason(err, "MACHINE_NOT_FOUND") {
		// A deleted machine is found by its node, which stays.
		return Must(c.t, c.Nodes().GetNode, &baremetalv1.GetNodeRequest{NodeId: id}).GetMachine()
	}
	if err != nil {
		c.t.Fatalf("get machine %s: %v", id, err)
	}
	return m
}

// Operation reads an operation.
func (c *Client) Operation(id string) *baremetalv1.Operation {
	c.t.Helper()
	return Must(c.t, c.Operations().GetOperation, &baremetalv1.GetOperationRequest{OperationId: id})
}

// Commands reads the newest 500 commands of a machine, newest first.
func (c *Client) Commands(machineID string) []*baremetalv1.Command {
	c.t.Helper()
	return Must(c.t, c.Admin().ListCommands, &baremetalv1.ListCommandsRequest{MachineId: machineID}).GetCommands()
}

// OperationsOf reads all operations of a machine, newest first.
func (c *Client) OperationsOf(machineID string) []*baremetalv1.Operation {
	c.t.Helper()
	return Must(c.t, c.Operations().ListOperations, &baremetalv1.ListOperationsRequest{
		Filter: "machine_id=" + machineID, PageSize: 200,
	}).GetOperations()
}

// Ended reports whether an operation never changes again.
func Ended(o *baremetalv1.Operation) bool {
	return check.Ended(o)
}

// Wait waits for an operation to end.
func (c *Client) Wait(operationID string, limit time.Duration) *baremetalv1.Operation {
	c.t.Helper()
	op := c.Operation(operationID)
	testkit.Eventually(c.t, limit, func() bool {
		op = c.Operation(operationID)
		return Ended(op)
	}, "operation %s has not ended: %v", operationID, lazy(func() string { return op.String() }))
	return op
}

// waitMost bounds the time in which an operation or a command becomes as a test expects. A machine at a fraction of its
// speed looks at what waits for an agent only at the next attempt's time.
const waitMost = 2 * time.Minute

// WaitFor waits until cond holds for an operation.
func (c *Client) WaitFor(operationID, what string, cond func(*baremetalv1.Operation) bool) *baremetalv1.Operation {
	c.t.Helper()
	op := c.Operation(operationID)
	testkit.Eventually(c.t, waitMost, func() bool {
		op = c.Operation(operationID)
		return cond(op)
	}, "operation %s: not %s: %v", operationID, what, lazy(func() string { return op.String() }))
	return op
}

// WaitCommand waits until the machine has a command for which cond holds, and returns the newest such.
func (c *Client) WaitCommand(machineID, what string, cond func(*baremetalv1.Command) bool) *baremetalv1.Command {
	c.t.Helper()
	var found *baremetalv1.Command
	var all []*baremetalv1.Command
	testkit.Eventually(c.t, waitMost, func() bool {
		all = c.Commands(machineID)
		for _, cmd := range all {
			if cond(cmd) {
				found = cmd
			}
		}
		return found != nil
	}, "machine %s has no command that is %s: %v", machineID, what, lazy(func() string { return fmt.Sprint(all) }))
	return found
}

// InState is a condition for WaitCommand.
func InState(states ...string) func(*baremetalv1.Command) bool {
	return func(c *baremetalv1.Command) bool {
		for _, s := range states {
			if c.GetState() == s {
				return true
			}
		}
		return false
	}
}

// readiness asks /readyz of a controller's HTTP listener.
func readiness(base string) (ready bool, answer string) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(base + "/readyz")
	if err != nil {
		return false, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return false, err.Error()
	}
	return resp.StatusCode == http.StatusOK, string(b)
}

// HasReason reports whether a call failed for this reason of the API's closed set.
func HasReason(err error, reason string) bool {
	return err != nil && failure.From(err).Reason == reason
}
