package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
)

func TestRequestID(t *testing.T) {
	if got := client.RequestID("deploy", "v2.1", "m-1"); got != "deploy-v2.1-m-1" {
		t.Errorf("short words become %q", got)
	}
	long := strings.Repeat("x", 200)
	seen := map[string]bool{}
	for _, words := range [][]string{{long, "a"}, {long, "b"}, {"ä b"}, {"ö b"}, {"\x00"}} {
		id := client.RequestID(words...)
		if id != client.RequestID(words...) || len(id) > 128 || seen[id] || strings.TrimFunc(id, printable) != "" {
			t.Errorf("%q becomes %q", words, id)
		}
		seen[id] = true
	}
}

func printable(r rune) bool { return r > ' ' && r <= '~' }

func TestReason(t *testing.T) {
	st, err := status.New(codes.FailedPrecondition, "busy").WithDetails(
		&errdetails.ErrorInfo{Domain: "ingot.dev", Reason: "MACHINE_BUSY"})
	if err != nil {
		t.Fatal(err)
	}
	ended := &client.OperationError{Operation: &baremetalv1.Operation{Phase: baremetalv1.Operation_FAILED,
		Error: &baremetalv1.ErrorStatus{Code: "STEP_TIMEOUT", Retryable: true}}}
	for _, c := range []struct {
		err  error
		want baremetalv1.Reason
	}{
		{st.Err(), baremetalv1.Reason_MACHINE_BUSY}, {ended, baremetalv1.Reason_STEP_TIMEOUT},
		{errors.Join(errors.New("while waiting"), ended), baremetalv1.Reason_STEP_TIMEOUT}, {errors.New("x"), 0}, {nil, 0},
	} {
		if got := client.Reason(c.err); got != c.want {
			t.Errorf("%v has the reason %v", c.err, got)
		}
	}
	for message, want := range map[string]bool{
		"authentication handshake failed: EOF":                                                         true,
		"authentication handshake failed: read tcp 127.0.0.1:1->127.0.0.1:2: connection reset by peer": true,
		"authentication handshake failed: tls: failed to verify certificate: x509: unknown authority":  false,
		"authentication handshake failed: remote error: tls: bad certificate":                          false,
		"authentication handshake failed: verify server: server's CA is not the one that was named":    false,
	} {
		if got := client.Transient(status.Error(codes.Unavailable, message)); got != want {
			t.Errorf("%s: transient %t", message, got)
		}
	}
	if !ended.Retryable() || client.Transient(st.Err()) || !client.Transient(status.Error(codes.Unavailable, "gone")) {
		t.Error("what may be tried again is not told from what may not")
	}
}

func TestDialRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []client.Config{
		{Server: "no-port"}, {Server: "a:1", CAFile: "/nowhere"}, {Server: "a:1", CAFile: empty},
	} {
		if conn, err := client.Dial(c); err == nil {
			conn.Close()
			t.Errorf("%+v was taken", c)
		}
	}
}
