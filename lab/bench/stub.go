package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ingot-metal/ingot/agent/enroll"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

// stub is an agent that only keeps a session: a real identity, both streams, heartbeats, and nothing behind them. The
// controller cannot tell it from an idle agent.
type stub struct {
	dir    state.Dir
	bootID string
}

// enrollStub trades a bootstrap token for an identity, through the enrolment listener.
func enrollStub(ctx context.Context, dir, bundle string) (stub, error) {
	s := stub{dir: state.Dir(dir), bootID: ids.New(ids.State)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return s, err
	}
	b, err := pki.ParseBundle(bundle)
	if err != nil {
		return s, err
	}
	cfg := enroll.Config{Dir: s.dir, Dial: transport.NetDialer(), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)}
	_, err = enroll.Enroll(ctx, cfg, b, enroll.Machine{BootID: s.bootID, HardwareFingerprint: s.bootID, Version: "bench"})
	return s, err
}

func (s stub) dial(address string) (*transport.Conn, error) {
	creds, err := s.dir.Credentials()
	if err != nil {
		return nil, err
	}
	roots, err := s.dir.Trust()
	if err != nil {
		return nil, err
	}
	cfg, err := transport.Mutual(creds.TLS(), roots, address, time.Now)
	if err != nil {
		return nil, err
	}
	return transport.Dial(address, cfg, transport.NetDialer())
}

// run keeps one session until ctx ends; opened is called when both streams are up. A session that ends earlier is an
// error.
func (s stub) run(ctx context.Context, address string, opened func()) error {
	conn, err := s.dial(address)
	if err != nil {
		return err
	}
	group, ctx := task.New(ctx)
	group.Go("session", func(ctx context.Context) error { return s.session(ctx, group, conn, opened) })
	err = group.Wait()
	if cerr := conn.Close(); cerr != nil && !errors.Is(cerr, net.ErrClosed) {
		err = errors.Join(err, cerr)
	}
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return nil
	}
	return err
}

func (s stub) session(ctx context.Context, group *task.Group, conn *transport.Conn, opened func()) error {
	client := fleetv1.NewAgentServiceClient(conn)
	commands, err := client.Commands(ctx)
	if err != nil {
		return fmt.Errorf("open command stream: %w", err)
	}
	stateID := ids.New(ids.State)
	err = commands.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Hello{Hello: &fleetv1.Hello{
		Version: "bench", Roles: []string{"host"}, Capabilities: []string{"reboot"}, BootId: s.bootID,
		HardwareFingerprint: s.bootID, StateId: stateID, Simulated: true,
	}}})
	if err != nil {
		return fmt.Errorf("say hello: %w", err)
	}
	first, err := commands.Recv()
	if err != nil {
		return fmt.Errorf("wait for welcome: %w", err)
	}
	w := first.GetWelcome()
	events, err := client.Events(ctx)
	if err != nil {
		return fmt.Errorf("open event stream: %w", err)
	}
	err = events.Send(&fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Hello{Hello: &fleetv1.EventsHello{
		SessionId: w.GetSessionId(), Epoch: w.GetEpoch(), StateId: stateID,
	}}})
	if err != nil {
		return fmt.Errorf("say hello on event stream: %w", err)
	}
	group.Go("commands", func(context.Context) error { return drain(commands.Recv) })
	group.Go("acks", func(context.Context) error { return drain(events.Recv) })
	opened()
	return s.beat(ctx, time.Duration(w.GetHeartbeatIntervalMs())*time.Millisecond, events.Send)
}

// drain reads until the stream ends.
func drain[M any](recv func() (M, error)) error {
	for {
		if _, err := recv(); err != nil {
			return err
		}
	}
}

func (s stub) beat(ctx context.Context, every time.Duration, send func(*fleetv1.EventsRequest) error) error {
	for began := time.Now(); ; {
		err := send(&fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Heartbeat{Heartbeat: &fleetv1.Heartbeat{
			Ts: timestamppb.Now(), BootId: s.bootID, UptimeMs: time.Since(began).Milliseconds(),
		}}})
		if err != nil {
			return fmt.Errorf("send heartbeat: %w", err)
		}
		if err := pause(ctx, every-transport.Jitter(every/10)); err != nil {
			return err
		}
	}
}
