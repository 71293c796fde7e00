package operation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/internal/failure"
)

func appendLog(r *publictest.Rig, op, text string) {
	r.T.Helper()
	if _, err := r.Store.Logs.AppendLog(r.T.Context(), op, "stdout", "reboot", []byte(text), time.Now()); err != nil {
		r.T.Fatal(err)
	}
}

// readLog hands chunks on until the log ends.
func readLog(ctx context.Context, r *publictest.Rig, q *pb.StreamOperationLogsRequest, each func(*pb.LogChunk)) error {
	s, err := r.Operations.StreamOperationLogs(ctx, q)
	if err != nil {
		return err
	}
	for {
		c, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		each(c)
	}
}

// TestLogsReplayAndFollow: what is stored, then what comes, to the end of the operation and a little after it.
func TestLogsReplayAndFollow(t *testing.T) {
	r := publictest.NewRig(t, smallPages, func(c *service.Config) { c.LogGrace = 300 * time.Millisecond })
	r.Register(&pb.Machine{MachineId: "m-1"})
	op := r.Enter("m-1", "q").GetOperationId()
	for i := range 7 {
		appendLog(r, op, fmt.Sprint(i+1))
	}
	var got []string
	err := readLog(t.Context(), r, &pb.StreamOperationLogsRequest{OperationId: op}, func(c *pb.LogChunk) {
		got = append(got, string(c.GetData()))
		if c.GetSeq() != int64(len(got)) || c.GetOperationId() != op || c.GetRunId() != op {
			t.Errorf("chunk %v", c)
		}
		switch len(got) {
		case 7:
			appendLog(r, op, "8")
		case 8:
			r.Look(op)
			r.Look(op)
			appendLog(r, op, "9, after the end")
		}
	})
	if err != nil || len(got) != 9 {
		t.Errorf("got %q, %v", got, err)
	}
	var rest []int64
	err = readLog(t.Context(), r, &pb.StreamOperationLogsRequest{OperationId: op, AfterSeq: 6},
		func(c *pb.LogChunk) { rest = append(rest, c.GetSeq()) })
	if err != nil || len(rest) != 3 || rest[0] != 7 {
		t.Errorf("after 6: %v, %v", rest, err)
	}
}

func TestLogsWithoutFollowing(t *testing.T) {
	r := publictest.NewRig(t, smallPages)
	r.Register(&pb.Machine{MachineId: "m-1"})
	op := r.Enter("m-1", "q").GetOperationId()
	for range 4 {
		appendLog(r, op, "x")
	}
	n := 0
	if err := readLog(t.Context(), r, &pb.StreamOperationLogsRequest{OperationId: op, NoFollow: true},
		func(*pb.LogChunk) { n++ }); err != nil || n != 4 {
		t.Errorf("%d chunks, %v", n, err)
	}
	s, err := r.Runs.StreamRunLogs(t.Context(), &pb.StreamRunLogsRequest{RunId: op, NoFollow: true, AfterSeq: 3})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := s.Recv(); err != nil || c.GetSeq() != 4 {
		t.Errorf("chunk %v, %v", c, err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v", err)
	}
}

// TestSlowReaderIsCutOff: a reader that takes nothing loses its stream, and resumes without a gap.
func TestSlowReaderIsCutOff(t *testing.T) {
	r := publictest.NewRig(t, smallPages, func(c *service.Config) { c.SendTimeout = 300 * time.Millisecond })
	r.Register(&pb.Machine{MachineId: "m-1"})
	op := r.Enter("m-1", "q").GetOperationId()
	big := string(bytes.Repeat([]byte("x"), 100_000))
	const chunks = 40
	for range chunks {
		appendLog(r, op, big)
	}
	s, err := r.Operations.StreamOperationLogs(t.Context(),
		&pb.StreamOperationLogsRequest{OperationId: op, NoFollow: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Header(); err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Second) // the reader's own slowness
	var last int64
	for {
		c, err := s.Recv()
		if err != nil {
			publictest.Wants(t, err, failure.KindExhausted, "SLOW_READER", "")
			break
		}
		if c.GetSeq() != last+1 {
			t.Fatalf("chunk %d after %d", c.GetSeq(), last)
		}
		last = c.GetSeq()
	}
	n := last
	err = readLog(t.Context(), r, &pb.StreamOperationLogsRequest{OperationId: op, NoFollow: true, AfterSeq: last},
		func(c *pb.LogChunk) {
			if n++; c.GetSeq() != n {
				t.Errorf("chunk %d in place of %d", c.GetSeq(), n)
			}
		})
	if err != nil || n != chunks || last == 0 || last == chunks {
		t.Errorf("%d chunks, then up to %d, %v", last, n, err)
	}
}
