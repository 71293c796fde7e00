package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

// reimaging is a server with one machine in maintenance that is about to be reimaged.
func reimaging(end pb.Operation_Phase, failure *pb.ErrorStatus) *fakeServer {
	op := &pb.Operation{
		OperationId: "op-1", MachineId: "machine-1", Type: pb.Operation_REIMAGE, Phase: pb.Operation_PENDING,
		CreatedAt: at(0),
	}
	done := proto.CloneOf(op)
	done.Phase, done.StartedAt, done.FinishedAt, done.Error = end, at(0), at(32), failure
	f := &fakeServer{
		op: op,
		machines: []*pb.Machine{machine("machine-1", pb.MachineStatus_MAINTENANCE, pb.MachineStatus_MAINTENANCE_IDLE, "",
			"Reachable")},
		after: machine("machine-1", pb.MachineStatus_MAINTENANCE, pb.MachineStatus_MAINTENANCE_IDLE, "", "Reachable",
			"Provisioned"),
	}
	f.watches = append(f.watches, events(errHang,
		event(op, 1, "created", "", ""),
		event(op, 2, "step_started", "netboot", "Setting netboot"),
		event(op, 3, "step_succeeded", "netboot", "Netboot configured"),
		event(done, 4, strings.ToLower(end.String()), "", ""),
	))
	f.logs = append(f.logs, chunks(nil, chunk(1, "netboot", "Configuring PXE\nDHCP updated\n")))
	return f
}

func event(op *pb.Operation, seq int64, kind, step, msg string) *pb.OperationEvent {
	return &pb.OperationEvent{
		Ts: at(int(seq)), Snapshot: op, Seq: seq, Cursor: "c" + string(rune('0'+seq)), Kind: kind, Step: step, Message: msg,
	}
}

func chunk(seq int64, step, text string) *pb.LogChunk {
	return &pb.LogChunk{OperationId: "op-1", RunId: "op-1", Seq: seq, Step: step, Stream: "stdout", Data: []byte(text)}
}

// inOrder reports whether the parts appear in text one after the other.
func inOrder(text string, parts ...string) bool {
	for _, p := range parts {
		_, after, ok := strings.Cut(text, p)
		if !ok {
			return false
		}
		text = after
	}
	return true
}

func TestReimagePlain(t *testing.T) {
	got := reimaging(pb.Operation_SUCCEEDED, nil).run(t, "reimage", "machine-1", "--image", "ubuntu-2204", "--request-id",
		"r1")
	if got.code != 0 || got.err != "" {
		t.Fatalf("exit code %d, stderr %q", got.code, got.err)
	}
	eventsSeen := inOrder(got.out, "Operation: op-1 (PENDING)\n", "→ Setting netboot…\n", "✓ Netboot configured\n",
		"✓ SUCCEEDED\nDuration: 32s\n",
		"Machine state after operation:\n  Phase: MAINTENANCE (unchanged)\n  EffectiveState: MAINTENANCE (was BUSY)\n"+
			"  Conditions: Reachable=✓, Provisioned=✓ (newly set)\n  ActiveOperationId: (cleared)\n")
	logsSeen := inOrder(got.out, "│ [netboot] Configuring PXE\n", "│ [netboot] DHCP updated\n", "✓ SUCCEEDED")
	if !eventsSeen || !logsSeen {
		t.Errorf("events in order: %v, logs before the result: %v\n%s", eventsSeen, logsSeen, got.out)
	}
	// Events and logs come over two streams in either order, and each line once.
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	slices.Sort(lines)
	want := []string{
		"  ActiveOperationId: (cleared)", "  Conditions: Reachable=✓, Provisioned=✓ (newly set)",
		"  EffectiveState: MAINTENANCE (was BUSY)", "  Phase: MAINTENANCE (unchanged)", "Duration: 32s",
		"Machine state after operation:", "Operation: op-1 (PENDING)", "→ Setting netboot…",
		"│ [netboot] Configuring PXE", "│ [netboot] DHCP updated", "✓ Netboot configured", "✓ SUCCEEDED",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("the lines are %q", lines)
	}
}

func TestReimageOnATerminal(t *testing.T) {
	got := reimaging(pb.Operation_SUCCEEDED, nil).runWith(t, func(c *command.Config) { c.OutTerminal = true },
		"reimage", "machine-1", "--no-color", "--request-id", "r1")
	want := []string{"┌──",
		"│ Operation: op-1\n│ Machine: machine-1\n│ Type: REIMAGE\n│ Phase: MAINTENANCE → EffectiveState: BUSY\n└──",
		"│ ✓ SUCCEEDED\n│ Duration: 32s\n└", "Machine state after operation:\n┌"}
	if !inOrder(got.out, want...) {
		t.Errorf("boxed view:\n%s", got.out)
	}
}

func TestResultAsJSON(t *testing.T) {
	got := reimaging(pb.Operation_SUCCEEDED, nil).run(t, "reimage", "machine-1", "-o", "json")
	var op map[string]any
	if err := json.Unmarshal([]byte(got.out), &op); err != nil {
		t.Fatalf("stdout is not one JSON document: %v\n%s", err, got.out)
	}
	if op["operation_id"] != "op-1" || op["phase"] != "SUCCEEDED" {
		t.Errorf("final operation: %v", op)
	}
	if !strings.Contains(got.err, "✓ Netboot configured") || !strings.Contains(got.err, "Request: req-") {
		t.Errorf("progress and request id belong on stderr: %q", got.err)
	}
}

func TestNoWait(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	got := f.run(t, "reimage", "machine-1", "--no-wait")
	if got.out != "Operation: op-1 (PENDING)\n" || got.code != 0 || len(f.watchReqs) != 0 {
		t.Errorf("%+v, %d watches", got, len(f.watchReqs))
	}
	if id := strings.TrimSpace(strings.TrimPrefix(got.err, "Request: ")); len(f.starts) != 1 || f.starts[0] != id {
		t.Errorf("printed request id %q, sent %v", id, f.starts)
	}
	if got := f.run(t, "reimage", "machine-1", "--no-wait", "--wait"); got.code != 1 {
		t.Errorf("--wait with --no-wait: %+v", got)
	}
}

func TestRepeatOfAFinishedRequest(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	f.op.Phase = pb.Operation_SUCCEEDED
	if got := f.run(t, "reimage", "machine-1", "--request-id",
		"deploy-v2.1"); got.out != "Operation: op-1 (SUCCEEDED)\n" || got.code != 0 {
		t.Errorf("%+v", got)
	}
}

func TestLostAnswerIsRepeatedWithTheSameRequestID(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	f.startErrs = []error{lostConnection, lostConnection}
	got := f.run(t, "reboot", "machine-1", "--no-wait")
	if got.code != 0 || len(f.starts) != 3 || len(f.made) != 1 {
		t.Errorf("exit code %d, %d calls under %d request ids; want 0, 3, 1", got.code, len(f.starts), len(f.made))
	}
	if strings.Count(got.err, "retrying") != 1 {
		t.Errorf("want one line about it: %q", got.err)
	}
}

func TestFailedOperation(t *testing.T) {
	f := reimaging(pb.Operation_FAILED, &pb.ErrorStatus{Code: "OUTCOME_UNKNOWN", Message: "no result",
		Details: map[string]string{"command_id": "cmd-9"}})
	got := f.run(t, "reimage", "machine-1", "--request-id", "r1")
	if got.code != 5 || !strings.Contains(got.out, "✗ FAILED") ||
		!strings.Contains(got.out, "Error: no result (OUTCOME_UNKNOWN)") {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(got.err, "ingot settle machine-1 cmd-9 --verdict") {
		t.Errorf("no hint: %q", got.err)
	}
}

func TestCanceledOperation(t *testing.T) {
	if got := reimaging(pb.Operation_CANCELED, nil).run(t, "reimage", "machine-1"); got.code != 6 {
		t.Errorf("exit code %d, want 6", got.code)
	}
	if got := reimaging(pb.Operation_CANCELED, nil).run(t, "cancel", "op-1", "--wait"); got.code != 0 {
		t.Errorf("cancel --wait of what was canceled: %+v", got)
	}
	if got := reimaging(pb.Operation_SUCCEEDED, nil).run(t, "cancel", "op-1", "--wait"); got.code != 4 {
		t.Errorf("cancel --wait of what succeeded: %+v", got)
	}
	if got := reimaging(pb.Operation_SUCCEEDED, nil).run(t, "cancel", "op-1"); got.out != "Operation: op-1 (PENDING)\n" ||
		got.code != 0 {
		t.Errorf("cancel: %+v", got)
	}
}

func TestTimeoutLeavesTheOperation(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	f.watches = append(f.watches[:0], events(errHang))
	got := f.run(t, "reimage", "machine-1", "--timeout", (300 * time.Millisecond).String())
	if got.code != 9 || !strings.Contains(got.err, "op-1 goes on") || !strings.Contains(got.err, "ingot watch op-1") {
		t.Errorf("%+v", got)
	}
}

func TestInterruptLeavesTheOperation(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	ctx, interrupt := context.WithCancel(t.Context())
	f.ctx = ctx
	f.watches = append(f.watches[:0],
		func(_ *pb.WatchOperationsRequest, s pb.OperationService_WatchOperationsServer) error {
			interrupt()
			<-s.Context().Done()
			return s.Context().Err()
		})
	got := f.run(t, "reimage", "machine-1")
	if got.code != 130 || !inOrder(got.err, "op-1 goes on", "ingot cancel op-1", "error: interrupted") {
		t.Errorf("%+v", got)
	}
}

func TestViewSurvivesARestart(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	whole := f.watches[0]
	f.watches = append(f.watches[:0],
		events(lostConnection, event(f.op, 1, "created", "", ""),
			event(f.op, 2, "step_started", "netboot", "Setting netboot")),
		events(lostConnection),
		whole, // a server that forgets the cursor and repeats everything
	)
	f.logs = append(f.logs[:0],
		chunks(lostConnection, chunk(1, "netboot", "one\n")),
		chunks(nil, chunk(1, "netboot", "one\n"), chunk(2, "netboot", "two\n")),
	)
	got := f.run(t, "reimage", "machine-1", "--request-id", "r1")
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	for _, once := range []string{"→ Setting netboot…", "✓ Netboot configured", "[netboot] one", "[netboot] two"} {
		if n := strings.Count(got.out, once); n != 1 {
			t.Errorf("%q appears %d times in:\n%s", once, n, got.out)
		}
	}
	if n := strings.Count(got.out, "connection lost, retrying…"); n != 2 {
		t.Errorf("%d lines about a lost connection, want one for each of two outages:\n%s", n, got.out)
	}
	if f.watchReqs[1].GetCursor() != "c2" || f.watchReqs[2].GetCursor() != "c2" {
		t.Errorf("reopened with %q and %q, want the cursor of the last event", f.watchReqs[1].GetCursor(),
			f.watchReqs[2].GetCursor())
	}
	if f.logReqs[1].GetAfterSeq() != 1 {
		t.Errorf("log reopened after %d, want 1", f.logReqs[1].GetAfterSeq())
	}
}

func TestExpiredCursorStartsOver(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	whole := f.watches[0]
	f.watches = append(f.watches[:0],
		events(lostConnection, event(f.op, 1, "created", "", "")),
		events(refuse(codes.FailedPrecondition, pb.Reason_CURSOR_EXPIRED, "cursor expired", nil)),
		whole,
	)
	got := f.run(t, "reimage", "machine-1", "--request-id", "r1")
	if got.code != 0 || f.watchReqs[2].GetCursor() != "" {
		t.Errorf("exit code %d, third watch with cursor %q", got.code, f.watchReqs[2].GetCursor())
	}
}

// A stream that breaks for good after the operation has finished must not hold its reader for ever.
func TestLastEventThatNeverComes(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	over := proto.CloneOf(f.op)
	over.Phase = pb.Operation_SUCCEEDED
	f.watches = append(f.watches[:0], func(*pb.WatchOperationsRequest, pb.OperationService_WatchOperationsServer) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.op = over
		return lostConnection
	})
	if got := f.run(t, "reimage", "machine-1", "--request-id", "r1"); got.code != 0 ||
		!strings.Contains(got.out, "✓ SUCCEEDED") {
		t.Errorf("%+v", got)
	}
}
