package obs_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/obs"
)

type request struct{ machine, operation, id string }

func (r request) GetMachineId() string   { return r.machine }
func (r request) GetOperationId() string { return r.operation }
func (r request) GetRequestId() string   { return r.id }

func logged(method string, req any, err error) (line string, code codes.Code) {
	var buf bytes.Buffer
	log := obs.CallLog{
		Logger:  slog.New(slog.NewTextHandler(&buf, nil)),
		Observe: func(_ string, c codes.Code, _ time.Duration) { code = c },
	}
	_, _ = log.Unary()(context.Background(), req, &grpc.UnaryServerInfo{FullMethod: method},
		func(ctx context.Context, _ any) (any, error) {
			obs.Annotate(ctx, slog.String("caller", "nobody"))
			obs.Annotate(ctx, slog.String("caller", "alice"))
			return nil, err
		})
	return buf.String(), code
}

func TestCallLine(t *testing.T) {
	err := failure.ToStatus(failure.Precondition("MACHINE_BUSY", "machine m-1 is busy")).Err()
	line, code := logged("/baremetal.v1.MachineService/RebootMachine", request{machine: "m-1", id: "r-1"}, err)
	for _, want := range []string{
		"method=/baremetal.v1.MachineService/RebootMachine", "code=FailedPrecondition", "reason=MACHINE_BUSY",
		"machine_id=m-1", "request_id=r-1", "caller=alice", "duration_ms=", `message="machine m-1 is busy"`,
	} {
		if !strings.Contains(line, want) {
			t.Errorf("no %s in %s", want, line)
		}
	}
	if strings.Contains(line, "operation_id") || strings.Contains(line, "nobody") || strings.Count(line, "\n") != 1 {
		t.Errorf("line is %s", line)
	}
	if code != codes.FailedPrecondition {
		t.Errorf("observed %v", code)
	}
}

func TestCallLevels(t *testing.T) {
	cases := []struct {
		method string
		code   failure.Kind
		ok     bool
		want   string
	}{
		{"/x.S/RebootMachine", 0, true, "level=INFO"},
		{"/x.S/GetMachine", 0, true, ""}, // below the level of this test's log
		{"/x.S/ListMachines", failure.KindNotFound, false, "level=INFO"},
		{"/x.S/GetMachine", failure.KindUnavailable, false, "level=WARN"},
		{"/x.S/GetMachine", failure.KindInternal, false, "level=ERROR"},
	}
	for _, c := range cases {
		var err error
		if !c.ok {
			err = failure.ToStatus(&failure.Error{Kind: c.code, Reason: "X"}).Err()
		}
		line, _ := logged(c.method, request{}, err)
		if !strings.Contains(line, c.want) || (c.want == "") != (line == "") {
			t.Errorf("%s %v: %q", c.method, err, line)
		}
	}
}

type oneMessage struct {
	grpc.ServerStream
	ctx context.Context
}

func (s oneMessage) Context() context.Context { return s.ctx }

func (s oneMessage) RecvMsg(m any) error {
	m.(*request).operation = "op-1"
	return nil
}

func TestStreamLineHasTheIdsOfItsRequest(t *testing.T) {
	var buf bytes.Buffer
	log := obs.CallLog{Logger: slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	err := log.Stream()(nil, oneMessage{ctx: context.Background()},
		&grpc.StreamServerInfo{FullMethod: "/x.S/WatchOperations"},
		func(_ any, ss grpc.ServerStream) error { return ss.RecvMsg(&request{}) })
	if err != nil || !strings.Contains(buf.String(), "operation_id=op-1") {
		t.Errorf("%v: %s", err, buf.String())
	}
}

func TestAnnotateOutsideACall(t *testing.T) {
	obs.Annotate(context.Background(), slog.String("a", "b")) // must not panic
}
