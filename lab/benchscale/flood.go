package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/fill"
	"github.com/ingot-metal/ingot/lab/measure"
)

const (
	// floodTime is how long each part of the flood lasts.
	floodTime = 10 * time.Second
	// floodCalls are under way at a time of the client that has a token; floodWatches are streams that it never reads.
	floodCalls, floodWatches = 1000, 500
	// floodSilent connections say nothing, and floodHalf calls without a token have a message of two MiB of which one is
	// sent.
	floodSilent, floodHalf = 2000, 400
)

// flood is what clients that mean no good cost the controller, and others. Memory is resident, in MiB.
type flood struct {
	Before float64 `json:"memory_before_mib"`
	// Parts is the most memory in each part.
	Parts []floodPart `json:"parts"`
	// Growth is what the worst part added.
	Growth float64 `json:"memory_growth_mib"`
	// Alone and During are the calls of a client with one at a time, without the flood and in its part with calls.
	Alone  measure.Latency `json:"polite_alone"`
	During measure.Latency `json:"polite_during"`
	// PoliteRefused of them were refused.
	PoliteRefused int `json:"polite_refused"`
}

type floodPart struct {
	Name string  `json:"name"`
	Most float64 `json:"memory_most_mib"`
}

func (f flood) print(w io.Writer) {
	fmt.Fprintf(w, "controller's memory before a flood\t%.0f MiB\n", f.Before)
	for _, p := range f.Parts {
		fmt.Fprintf(w, "  with %s\t%.0f MiB at most\n", p.Name, p.Most)
	}
	fmt.Fprintf(w, "GetMachine of another client, alone\t%s\n", text(f.Alone))
	fmt.Fprintf(w, "  while one floods with calls\t%s\n", text(f.During))
}

func (g *rig) residentMiB() (float64, error) {
	rss, err := g.Controllers[0].RSS()
	return float64(rss) / measure.MiB, err
}

// flood lets three kinds of bad clients at the controller, one after the other.
func (g *rig) flood(ctx context.Context, machines int) (f flood, err error) {
	if f.Before, err = g.residentMiB(); err != nil {
		return f, err
	}
	if f.Alone, _, err = g.polite(ctx, machines); err != nil {
		return f, err
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{fmt.Sprintf("%d connections that say nothing", floodSilent), g.silent},
		{fmt.Sprintf("%d messages of strangers, sent by half", floodHalf), g.strangers},
		{fmt.Sprintf("%d watches that nobody reads", floodWatches), g.watches},
		{fmt.Sprintf("%d calls of one client at a time", floodCalls), g.calls},
	} {
		benchrig.Say("flood: %s", part.name)
		most, err := g.during(ctx, part.run, func(ctx context.Context) (err error) {
			if strings.Contains(part.name, "calls") {
				f.During, f.PoliteRefused, err = g.polite(ctx, machines)
			}
			return err
		})
		if err != nil {
			return f, fmt.Errorf("%s: %w", part.name, err)
		}
		f.Parts = append(f.Parts, floodPart{part.name, most})
		f.Growth = max(f.Growth, most-f.Before)
	}
	return f, nil
}

// during runs a part of the flood for its time, and something beside it, and looks at the controller's memory.
func (g *rig) during(ctx context.Context, bad, beside func(context.Context) error) (most float64, err error) {
	short, cancel := context.WithTimeout(ctx, floodTime)
	defer cancel()
	group, _ := task.New(short)
	group.Go("flood", bad)
	group.Go("beside", beside)
	group.Go("memory", func(ctx context.Context) error {
		for ctx.Err() == nil {
			now, err := g.residentMiB()
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
func (g *rig) polite(ctx context.Context, machines int) (measure.Latency, int, error) {
	conn, err := g.Controllers[0].Dial(g.second)
	if err != nil {
		return measure.Latency{}, 0, err
	}
	defer conn.Close()
	some, refused := rand.New(rand.NewPCG(3, 4)), 0
	var all []time.Duration
	for range max(g.o.calls, 100) {
		began := time.Now()
		_, err := pb.NewMachineServiceClient(conn).GetMachine(ctx,
			&pb.GetMachineRequest{MachineId: fill.Machine(some.IntN(machines))})
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
func (g *rig) calls(ctx context.Context) error {
	conn, err := g.Controllers[0].Dial(g.Token)
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
	benchrig.Say("  %d pages were served", served.Load())
	return err
}

// watches opens streams and reads nothing of them.
func (g *rig) watches(ctx context.Context) error {
	conn, err := g.Controllers[0].Dial(g.Token)
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

// silent opens connections and says nothing on them.
func (g *rig) silent(ctx context.Context) error {
	var d net.Dialer
	for range floodSilent {
		conn, err := d.DialContext(ctx, "tcp", g.Controllers[0].Frontpage)
		if err != nil {
			break // it is turned away
		}
		defer conn.Close()
	}
	<-ctx.Done()
	return nil
}

// strangers begin calls without a token and never end them.
func (g *rig) strangers(ctx context.Context) error {
	ca, err := os.ReadFile(g.Controllers[0].CAFile())
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots,
		MinVersion: tls.VersionTLS13}}
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
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+g.Controllers[0].Frontpage+
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
