package cli

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

// lives is a server on which each workflow takes a few looks, one operation per request id.
type lives struct {
	mu sync.Mutex
	// left are the looks until the end, by request id, which is the operation's id too.
	left map[string]int
	// open is how many are under way, and most how many were.
	open, most int
	ended      int
	// onEnd is told of each end.
	onEnd func(ended int)
}

func newLives() *lives { return &lives{left: map[string]int{}} }

func (l *lives) start(r *pb.StartWorkflowRequest) (*pb.Operation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.GetMachineId() == "machine-busy" {
		return nil, refuse(codes.FailedPrecondition, pb.Reason_MACHINE_BUSY, "an operation is active on the machine", nil)
	}
	id := r.GetRequestId()
	if _, known := l.left[id]; !known {
		l.left[id] = 3
		l.open++
		l.most = max(l.most, l.open)
	}
	return l.operation(id), nil
}

func (l *lives) poll(id string) (*pb.Operation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left[id]--; l.left[id] == 0 {
		l.open--
		l.ended++
		if l.onEnd != nil {
			l.onEnd(l.ended)
		}
	}
	return l.operation(id), nil
}

// begun and done are how many workflows there were, and how many have ended. A command that was interrupted may leave a
// call that the server still answers.
func (l *lives) begun() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.left)
}

func (l *lives) done() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

func (l *lives) operation(id string) *pb.Operation {
	op := &pb.Operation{OperationId: id, MachineId: id[strings.Index(id, "/")+1:], Phase: pb.Operation_RUNNING}
	if l.left[id] <= 0 {
		op.Phase = pb.Operation_SUCCEEDED
		if op.GetMachineId() == "machine-bad" {
			op.Phase, op.Error = pb.Operation_FAILED, &pb.ErrorStatus{Code: "EXECUTION_FAILED"}
		}
		op.FinishedAt = at(1)
	}
	return op
}

// TestABatchKeepsItsLimit, with two machines that fail in their ways: the others are onboarded, each machine's end is
// told, and the exit code is that of the first that failed.
func TestABatchKeepsItsLimit(t *testing.T) {
	machines := []string{"machine-1", "machine-busy", "machine-2", "machine-bad", "machine-3", "machine-4", "machine-5",
		"machine-6"}
	for limit, most := range map[int]int{1: 1, 3: 3, 100: 7} {
		f := fleet()
		f.lives = newLives()
		args := append([]string{"onboard", "--yes", "--request-id", "rack-42", "--parallelism", fmt.Sprint(limit)},
			machines...)
		got := f.run(t, args...)
		if f.lives.most > most || f.lives.most == 0 || f.lives.ended != 7 {
			t.Errorf("limit %d: %d at once, %d have ended", limit, f.lives.most, f.lives.ended)
		}
		if got.code != command.ExitRefused || strings.Count(got.out, "SUCCEEDED") != 6 ||
			!inOrder(got.out, "machine-1", "machine-busy", "MACHINE_BUSY", "machine-2", "machine-bad", "FAILED",
				"EXECUTION_FAILED", "machine-6") {
			t.Errorf("limit %d: %+v", limit, got)
		}
	}
	f := fleet()
	f.lives = newLives()
	got := f.run(t, "onboard", "machine-1", "machine-busy", "--yes", "-o", "json")
	if got.code != command.ExitRefused || !inOrder(got.out, `"machine_id": "machine-1"`, `"SUCCEEDED"`,
		`"machine_id": "machine-busy"`, `"code": "MACHINE_BUSY"`) {
		t.Errorf("as a document: %+v", got)
	}
	if got := fleet().run(t, "onboard", "machine-1", "machine-2", "--yes", "--parallelism",
		"0"); got.code != command.ExitUnexpected || !strings.Contains(got.err, "--parallelism") {
		t.Errorf("%+v", got)
	}
}

// TestAnInterruptedBatchGoesOn when it is given again: what was begun is looked at, and nothing begins twice.
func TestAnInterruptedBatchGoesOn(t *testing.T) {
	f := fleet()
	f.lives = newLives()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	f.ctx = ctx
	f.lives.onEnd = func(ended int) {
		if ended == 2 {
			interrupt()
		}
	}
	args := strings.Fields(
		"onboard machine-1 machine-2 machine-3 machine-4 machine-5 machine-6 --yes --request-id rack-42 --parallelism 2")
	if got := f.run(t, args...); got.code != command.ExitInterrupted {
		t.Errorf("interrupted: %+v", got)
	}
	if begun := f.lives.begun(); begun == 6 || begun < 2 {
		t.Errorf("%d were begun", begun)
	}
	f.ctx = nil // onEnd may still be called, by a call that goes on, and does nothing at any other end
	if got := f.run(
		t,
		args...); got.code != command.ExitOK || strings.Count(got.out, "SUCCEEDED") != 6 ||
		f.lives.begun() != 6 ||
		f.lives.done() != 6 {
		t.Errorf("given again: %+v, %d begun, %d ended", got, f.lives.begun(), f.lives.done())
	}
}
