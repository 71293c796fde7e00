package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

const (
	welcomeWait      = 30 * time.Second
	supersededWait   = 2 * time.Second
	defaultHeartbeat = 10 * time.Second
)

// session is one session on one connection.
type session struct {
	r       *Runner
	conn    *transport.Conn
	creds   state.Credentials
	isNext  bool
	link    *outbox
	welcome *fleetv1.Welcome
	hello   *fleetv1.Hello
	moved   chan struct{}
	// renew holds the time over which a renewal that the controller asks for is spread.
	renew   chan time.Duration
	inDoubt bool // the memory may be an old copy; no event is sent before that has ended
}

type commandStream = grpc.BidiStreamingClient[fleetv1.AgentMessage, fleetv1.ControllerMessage]

// run opens the session and stays in it until it ends.
func (s *session) run(ctx context.Context) error {
	group, ctx := task.New(ctx)
	client := fleetv1.NewAgentServiceClient(s.conn)
	stream, err := s.open(ctx, client)
	if err == nil {
		err = s.accept(ctx)
	}
	if err != nil {
		group.Go("end", func(context.Context) error { return err })
		return group.Wait()
	}
	s.r.connected.Store(true)
	defer func() {
		s.r.connected.Store(false)
		if s.r.cfg.Ended != nil {
			s.r.cfg.Ended()
		}
	}()
	s.r.current.Store(s)
	defer s.r.current.Store(nil)
	s.r.cfg.Dispatcher.Attach(s.link, s.welcome)
	defer s.r.cfg.Dispatcher.Detach()
	group.Go("send", func(ctx context.Context) error { return s.ended(ctx, s.link.pump(ctx, stream.Send)) })
	group.Go("receive", func(ctx context.Context) error { return s.receive(ctx, group, stream) })
	group.Go("events", func(ctx context.Context) error { return s.ended(ctx, s.events(ctx, group, client)) })
	if !s.r.cfg.OneCertificate {
		group.Go("rotate", func(ctx context.Context) error { return s.rotate(ctx, client) })
	}
	group.Go("moved", s.awaitReconnect)
	return group.Wait()
}

// open sends Hello and waits for Welcome.
func (s *session) open(ctx context.Context, client fleetv1.AgentServiceClient) (commandStream, error) {
	hello, err := s.makeHello(ctx)
	if err != nil {
		return nil, fatal{err}
	}
	s.hello = hello
	stream, err := client.Commands(ctx)
	if err != nil {
		return nil, fmt.Errorf("open command stream: %w", err)
	}
	if err := stream.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Hello{Hello: hello}}); err != nil &&
		!errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("say hello: %w", err)
	}
	first, err := s.firstMessage(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("wait for welcome: %w", err)
	}
	if s.welcome = first.GetWelcome(); s.welcome == nil {
		return nil, fmt.Errorf("wait for welcome: got %T", first.GetMessage())
	}
	return stream, nil
}

// firstMessage bounds the wait by closing the connection, since a Recv has no deadline of its own.
func (s *session) firstMessage(ctx context.Context, stream commandStream) (*fleetv1.ControllerMessage, error) {
	timer := time.AfterFunc(welcomeWait, func() {
		_ = s.conn.Close() // Recv returns the error
	})
	defer timer.Stop()
	return stream.Recv()
}

func (s *session) makeHello(ctx context.Context) (*fleetv1.Hello, error) {
	hello, err := s.r.cfg.Hello(ctx)
	if err != nil {
		return nil, fmt.Errorf("describe the agent: %w", err)
	}
	meta, err := s.r.cfg.Store.Meta(ctx)
	if err != nil {
		return nil, err
	}
	held, err := s.r.cfg.Store.Unsettled(ctx)
	if err != nil {
		return nil, err
	}
	hello.StateId, hello.PreviousStateId, hello.LockedReason = meta.StateID, meta.PreviousStateID, meta.LockedReason
	hello.LastGrantSeq, hello.LastEventSeq = meta.LastGrantSeq, meta.LastEventSeq
	if len(meta.StartedGrant) > 0 {
		hello.StartedGrant = &fleetv1.StartedGrant{}
		if err := proto.Unmarshal([]byte(meta.StartedGrant), hello.StartedGrant); err != nil {
			return nil, fmt.Errorf("parse the grant of the last command: %w", err)
		}
	}
	if s.inDoubt = meta.InDoubt; s.inDoubt {
		// What a copy has buffered since it was restored does not hide how old it is.
		hello.LastEventSeq = meta.SharedEventSeq
	}
	for _, c := range held {
		hello.Held = append(hello.Held, &fleetv1.HeldCommand{CommandId: c.ID, State: c.State})
	}
	return hello, nil
}

// accept takes over the settings of the Welcome. Each part is durable before it is relied on.
func (s *session) accept(ctx context.Context) error {
	w := s.welcome
	if w.GetStateRolledBack() {
		return state.ErrRolledBack
	}
	if s.isNext {
		if err := s.r.cfg.Dir.Promote(); err != nil {
			return fatal{err}
		}
		s.r.cfg.Log.Info("the next certificate is in use now", "expires_at", s.creds.Leaf().NotAfter)
	}
	if len(w.GetTrustBundle()) > 0 {
		if err := s.r.cfg.Dir.SaveTrust(w.GetTrustBundle()); err != nil {
			s.r.cfg.Log.Error("trust bundle not taken over", "error", err)
		}
	}
	if w.GetControllerTime() != nil {
		err := s.r.cfg.Store.SawControllerTime(ctx, w.GetControllerTime().AsTime())
		if err != nil && !errors.Is(err, state.ErrStorageFull) {
			return fatal{err}
		}
	}
	s.r.heartbeat.Store(int64(interval(w)))
	if s.r.cfg.Welcomed != nil {
		s.r.cfg.Welcomed(w)
	}
	s.r.cfg.Log.Info("session open", "session_id", w.GetSessionId(), "epoch", w.GetEpoch(),
		"controller_id", w.GetControllerId(), "machine_id", w.GetMachineId())
	return nil
}

func interval(w *fleetv1.Welcome) time.Duration {
	if ms := w.GetHeartbeatIntervalMs(); ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return defaultHeartbeat
}

// receivedAtOnce bounds the messages that are handled together.
const receivedAtOnce = 64

// receive takes the controller's messages in their order, those together that have come together.
func (s *session) receive(ctx context.Context, group *task.Group, stream commandStream) error {
	messages, ended := make(chan *fleetv1.ControllerMessage, receivedAtOnce), make(chan error, 1)
	group.Go("read", func(ctx context.Context) error {
		defer close(messages)
		for {
			m, err := stream.Recv()
			if err != nil {
				ended <- err
				return nil // receive returns its meaning
			}
			select {
			case messages <- m:
			case <-ctx.Done():
				return nil
			}
		}
	})
	for {
		list := comeTogether(messages)
		for i, m := range list {
			switch b := m.GetMessage().(type) {
			case *fleetv1.ControllerMessage_Superseded:
				if b.Superseded.GetByEpoch() > s.welcome.GetEpoch() {
					return errors.Join(s.handle(ctx, list[:i]), s.superseded(ctx, messages))
				}
			case *fleetv1.ControllerMessage_Drain:
				s.drain(group, b.Drain)
			case *fleetv1.ControllerMessage_Trust:
				s.trust(b.Trust)
			case *fleetv1.ControllerMessage_DiscoverBmcs:
				s.discover(group, b.DiscoverBmcs)
			}
		}
		if err := s.handle(ctx, list); err != nil {
			return err
		}
		if len(list) > 0 {
			continue
		}
		select {
		case err := <-ended:
			if replaced(err) {
				return ErrSuperseded
			}
			return fmt.Errorf("command stream: %w", err)
		default:
			return ctx.Err()
		}
	}
}

// comeTogether waits for a message and returns it with those that are there already; none when the stream has ended.
func comeTogether(messages <-chan *fleetv1.ControllerMessage) (list []*fleetv1.ControllerMessage) {
	m, ok := <-messages
	for ; ok; m, ok = <-messages {
		list = append(list, m)
		if len(messages) == 0 || len(list) == receivedAtOnce {
			break
		}
	}
	return list
}

func (s *session) handle(ctx context.Context, list []*fleetv1.ControllerMessage) error {
	if err := s.r.cfg.Dispatcher.Handle(ctx, list...); err != nil {
		return fatal{err}
	}
	return nil
}

// replaced reports whether the controller ended a stream because of a newer session, which can only be another
// process's.
func replaced(err error) bool {
	return failure.ReasonOf(err) == baremetalv1.Reason_SESSION_SUPERSEDED.String()
}

// ended waits a moment for a more precise error of a stream that has ended. After io.EOF of a Send the receiving side
// has the cause. After a replaced session the command stream has it, where the agent confirms.
func (s *session) ended(ctx context.Context, err error) error {
	super := err != nil && replaced(err)
	wait := supersededWait
	if !super {
		if !errors.Is(err, io.EOF) {
			return err
		}
		wait *= 2
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
	}
	if super {
		return ErrSuperseded
	}
	return err
}

// superseded confirms, and waits a moment for the confirmation to arrive.
func (s *session) superseded(ctx context.Context, messages <-chan *fleetv1.ControllerMessage) error {
	s.link.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_SupersededAck{SupersededAck: &fleetv1.SupersededAck{
		BootId: s.hello.GetBootId(), HardwareFingerprint: s.hello.GetHardwareFingerprint(),
	}}})
	late := time.NewTimer(supersededWait)
	defer late.Stop()
	for {
		select {
		case _, ok := <-messages:
			if !ok {
				return ErrSuperseded
			}
		case <-late.C:
			return ErrSuperseded
		case <-ctx.Done():
			return ErrSuperseded
		}
	}
}

// drain goes on for a random part of the time, so that the fleet doesn't come back all at once.
func (s *session) drain(group *task.Group, d *fleetv1.Drain) {
	wait := transport.Jitter(time.Duration(d.GetSpreadMs()) * time.Millisecond)
	s.r.cfg.Log.Info("controller drains", "reconnect_in", wait.String())
	group.Go("drain", func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.r.cfg.Clock.After(wait):
			return errDrained
		}
	})
}

// discover looks for BMCs beside everything else.
func (s *session) discover(group *task.Group, d *fleetv1.DiscoverBMCs) {
	if s.r.cfg.Discover == nil {
		return
	}
	group.Go("discover BMCs", func(ctx context.Context) error {
		s.r.cfg.Discover(ctx, d, func(found *fleetv1.BMCsDiscovered) {
			s.link.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_BmcsDiscovered{BmcsDiscovered: found}})
		})
		return nil
	})
}
