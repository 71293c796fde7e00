package scale

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/fill"
	"github.com/ingot-metal/ingot/lab/measure"
)

const (
	// floodTime is how long each part of the flood lasts.
	floodTime = 10 * time.Second
	// floodCalls are under way at a time of the client that has a token; floodWatches are streams that it never reads.
	floodCalls, floodWatches = 1000, 500
	// floodSilent connections send nothing, and floodHalf calls without a token have a message of two MiB of which one is
	// sent.
	floodSilent, floodHalf = 2000, 400
)

// The limits: how much memory a flood may cost the controller, in MiB, and how long the p99 of another client's calls
// may take meanwhile, in milliseconds.
const mostFlood, mostPolite = 512.0, 250.0

func (b *bench) residentMiB() (float64, error) {
	rss, err := measure.RSS(b.Controllers[0].Pid())
	return float64(rss) / measure.MiB, err
}

// flood runs four kinds of bad clients against the controller, one after the other.
func (b *bench) flood(ctx context.Context) error {
	before, err := b.residentMiB()
	if err != nil {
		return err
	}
	alone, _, err := b.polite(ctx)
	if err != nil {
		return err
	}
	b.run.Add("controller's memory before a flood", before, "MiB", nil, "resident")
	var worst float64
	var during measure.Latency
	var refused int
	nothing := func(context.Context) error { return nil }
	polite := func(ctx context.Context) (err error) {
		during, refused, err = b.polite(ctx)
		return err
	}
	for _, part := range []struct {
		name        string
		bad, beside func(context.Context) error
	}{
		{fmt.Sprintf("%d connections that send nothing", floodSilent), b.silent, nothing},
		{fmt.Sprintf("%d messages of strangers, sent by half", floodHalf), b.strangers, nothing},
		{fmt.Sprintf("%d watches that are never read", floodWatches), b.watches, nothing},
		{fmt.Sprintf("%d calls of one client at a time", floodCalls), b.calls, polite},
	} {
		rig.Say("flood: %s", part.name)
		most, err := b.during(ctx, part.bad, part.beside)
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		b.run.Add("flood: "+part.name, most, "MiB", nil, "the most memory of the controller meanwhile")
		worst = max(worst, most-before)
	}
	b.run.Add(
		"memory of a flood",
		worst,
		"MiB",
		report.AtMost(mostFlood),
		"the worst of four floods adds it to the controller",
	)
	b.run.Add("another client's p99 in the flood", during.P99, "ms", report.AtMost(mostPolite),
		"of GetMachine, p50 %.1f ms; alone %.1f and %.1f ms", during.P50, alone.P50, alone.P99)
	b.run.Add("another client's refusals in the flood", float64(refused), "", report.AtMost(0), "of %d calls", during.N)
	return nil
}

// during runs a part of the flood for its time, and something beside it, and looks at the controller's memory.
func (b *bench) during(ctx context.Context, bad, beside func(context.Context) error) (most float64, err error) {
	short, cancel := context.WithTimeout(ctx, floodTime)
	defer cancel()
	group, _ := task.New(short)
	group.Go("flood", bad)
	group.Go("beside", beside)
	group.Go("memory", func(ctx context.Context) error {
		for ctx.Err() == nil {
			now, err := b.residentMiB()
			if err != nil {
				return err
			}
			most = max(most, now)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
		return nil
	})
	return most, group.Wait()
}

// polite calls one after the other with a token of its own.
func (b *bench) polite(ctx context.Context) (measure.Latency, int, error) {
	conn, err := b.Controllers[0].Dial(b.second)
	if err != nil {
		return measure.Latency{}, 0, err
	}
	defer conn.Close()
	some, refused := rand.New(rand.NewPCG(3, 4)), 0
	var all []time.Duration
	for range max(b.o.calls, 100) {
		began := time.Now()
		_, err := pb.NewMachineServiceClient(conn).GetMachine(ctx,
			&pb.GetMachineRequest{MachineId: fill.Machine(some.IntN(b.machines))})
		switch {
		case ctx.Err() != nil:
			return measure.Percentiles(all), refused, nil
		case status.Code(err) == codes.ResourceExhausted:
			refused++
		case err != nil:
			return measure.Latency{}, 0, err
		}
		all = append(all, time.Since(began))
	}
	return measure.Percentiles(all), refused, nil
}

// calls asks for pages of 1,000 machines as fast as it is let.
func (b *bench) calls(ctx context.Context) error {
	conn, err := b.Controllers[0].Dial(b.Token)
	if err != nil {
		return err
	}
	defer conn.Close()
	var served atomic.Int64
	group, _ := task.New(ctx)
	for range floodCalls {
		group.Go("caller", func(ctx context.Context) error {
			for ctx.Err() == nil {
				if _, err := pb.NewMachineServiceClient(conn).ListMachines(ctx,
					&pb.ListMachinesRequest{PageSize: 1000}); err == nil {
					served.Add(1)
				}
			}
			return nil
		})
	}
	err = group.Wait()
	rig.Say("  %d pages were served", served.Load())
	return err
}

// watches opens streams and reads nothing of them.
func (b *bench) watches(ctx context.Context) error {
	conn, err := b.Controllers[0].Dial(b.Token)
	if err != nil {
		return err
	}
	defer conn.Close()
	for range floodWatches {
		if _, err := pb.NewOperationServiceClient(conn).WatchOperations(ctx, &pb.WatchOperationsRequest{}); err != nil &&
			ctx.Err() == nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// silent opens connections and sends nothing on them.
func (b *bench) silent(ctx context.Context) error {
	var d net.Dialer
	for range floodSilent {
		conn, err := d.DialContext(ctx, "tcp", b.Controllers[0].Frontpage)
		if err != nil {
			break // it is turned away
		}
		defer conn.Close()
	}
	<-ctx.Done()
	return nil
}

// strangers begin calls without a token and never end them.
func (b *bench) strangers(ctx context.Context) error {
	tr, err := b.Controllers[0].Transport()
	if err != nil {
		return err
	}
	defer tr.CloseIdleConnections()
	group, _ := task.New(ctx)
	for range floodHalf {
		group.Go("stranger", func(ctx context.Context) error {
			body, more := io.Pipe()
			header := binary.BigEndian.AppendUint32([]byte{0}, 2<<20)
			stop := context.AfterFunc(ctx, func() { _ = more.Close() })
			defer stop()
			task.Background("half a message", func() {
				_, _ = more.Write(append(header, make([]byte, 1<<20)...)) // until it is cut off
			})
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+b.Controllers[0].Frontpage+
				"/baremetal.v1.MachineService/ListMachines", body)
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/grpc")
			if resp, err := tr.RoundTrip(req); err == nil {
				_ = resp.Body.Close()
			}
			_ = body.Close()
			return nil
		})
	}
	return group.Wait()
}
