package follow

import (
	"context"
	"errors"
	"io"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/internal/clock"
)

// LogConfig is the log to read.
type LogConfig struct {
	Open Opener
	// Complete reports whether the log is complete, after a stream has ended. It is called once per end.
	Complete func(ctx context.Context) (bool, error)
	// Wake, when it is closed, cuts the pause short that waits for a log to be complete. May be nil.
	Wake  <-chan struct{}
	Clock clock.Clock
	// Lost is called when the connection goes, once until the next chunk.
	Lost func()
}

// Opener starts a log after the chunk with the given number and returns the function that receives.
type Opener func(ctx context.Context, afterSeq int64) (func() (*pb.LogChunk, error), error)

// OperationLog opens the log of an operation; with noFollow it ends after the stored part.
func OperationLog(c pb.OperationServiceClient, id string, noFollow bool) Opener {
	return func(ctx context.Context, after int64) (func() (*pb.LogChunk, error), error) {
		s, err := c.StreamOperationLogs(ctx, &pb.StreamOperationLogsRequest{OperationId: id, AfterSeq: after,
			NoFollow: noFollow})
		if err != nil {
			return nil, err
		}
		return s.Recv, nil
	}
}

// RunLog opens the log of a run; with noFollow it ends after the stored part.
func RunLog(c pb.RunServiceClient, id string, noFollow bool) Opener {
	return func(ctx context.Context, after int64) (func() (*pb.LogChunk, error), error) {
		s, err := c.StreamRunLogs(ctx, &pb.StreamRunLogsRequest{RunId: id, AfterSeq: after, NoFollow: noFollow})
		if err != nil {
			return nil, err
		}
		return s.Recv, nil
	}
}

// Log hands on every chunk of one log, over as many streams as it takes.
func Log(ctx context.Context, cfg LogConfig, each func(*pb.LogChunk) error) error {
	var (
		back  apiclient.Backoff
		after int64
		lost  bool
	)
	for {
		// Asked before the stream is opened, so that what was written in between is in the stream.
		complete, err := cfg.Complete(ctx)
		var failed error
		if err == nil {
			err = readChunks(ctx, cfg, &after, func(c *pb.LogChunk) error {
				lost = false
				back.Reset()
				failed = each(c)
				return failed
			})
		}
		switch {
		case failed != nil:
			return failed
		case errors.Is(err, io.EOF) && complete:
			return nil
		case !again(ctx, err):
			return err
		case !lost && !errors.Is(err, io.EOF):
			lost = true
			cfg.Lost()
		}
		wake := cfg.Wake
		if complete {
			wake = nil // closed already; it would let a broken connection spin
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		case <-cfg.Clock.After(back.Next()):
		}
	}
}

func readChunks(ctx context.Context, cfg LogConfig, after *int64, each func(*pb.LogChunk) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	recv, err := cfg.Open(ctx, *after)
	if err != nil {
		return err
	}
	for {
		c, err := recv()
		if err != nil {
			return err
		}
		if seq := c.GetSeq(); seq != 0 {
			if seq <= *after {
				continue
			}
			*after = seq
		}
		if err := each(c); err != nil {
			return err
		}
	}
}
