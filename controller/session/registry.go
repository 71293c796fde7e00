// Package session keeps the agents' live sessions of this controller: whom a command can be sent to right now, which
// certificates are in use, and when each agent was last heard.
//
// Nothing here is authoritative: agent_sessions in Postgres is. A session that is lost here is opened again by its
// agent.
package session

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/hwid"
	"github.com/ingot-metal/ingot/internal/task"
)

// Why a session ends.
var (
	ErrSuperseded = errors.New("a newer session of this agent has taken over")
	ErrRevoked    = errors.New("the certificate has been revoked")
	ErrHistory    = errors.New("the database is of another history than when this session was opened")
	ErrLeaseLost  = errors.New("this controller has lost its lease")
	ErrDraining   = errors.New("this controller is shutting down")
	ErrSlow       = errors.New("the agent does not read its messages")
	ErrSilent     = errors.New("the agent has missed its heartbeats")
)

// queueLen bounds what waits to be written to the agent of one machine, and siteQueueLen to that of a site's machines.
const (
	queueLen     = 64
	siteQueueLen = 8192
)

// Peer is what a session is with: who, proven by which certificate, and what it said of itself.
type Peer struct {
	AgentID, SessionID, MachineID, Role, Site, Fingerprint string
	StateID, BootID, Hardware                              string
	Simulated, Locked                                      bool
	// Discovers is set when the agent can look for BMCs.
	Discovers bool
	Epoch     int64
	// CertificateEnds is when the certificate does that the session was opened with, and Generation which of the CA's
	// signed it.
	CertificateEnds time.Time
	Generation      int
}

// Session is one live session.
type Session struct {
	Peer

	out chan *fleetv1.ControllerMessage
	// write sends a message to the agent, once there is a stream; writing is set while a goroutine writes.
	write   func(*fleetv1.ControllerMessage) error
	started atomic.Bool
	writing atomic.Bool
	pen     sync.Mutex // held while a message is written

	ctx    context.Context
	cancel context.CancelCauseFunc
	beat   atomic.Int64 // unix nanoseconds of the last sign of life
	stored atomic.Int64 // the one that the database has
	// clone is set when a session with other hardware has taken over: if this one still speaks, both live.
	clone     atomic.Pointer[hwid.Verdict]
	discovery discovery
	told      struct {
		changed uint64
		renew   bool
	}
}

// ToldOf reports whether the agent must be notified of a change of the CA, and records that it was. One goroutine asks.
func (s *Session) ToldOf(changed uint64, renew bool) bool {
	if s.told.changed == changed && s.told.renew == renew {
		return false
	}
	s.told.changed, s.told.renew = changed, renew
	return true
}

// New makes a session. Its context ends with parent, or with a cause.
func New(parent context.Context, p Peer, now time.Time) *Session {
	length := queueLen
	if p.Role == "site" {
		length = siteQueueLen
	}
	s := &Session{Peer: p, out: make(chan *fleetv1.ControllerMessage, length)}
	s.ctx, s.cancel = context.WithCancelCause(parent)
	s.beat.Store(now.UnixNano())
	s.stored.Store(now.UnixNano()) // with the session itself
	return s
}

// Context ends when the session does; its cause is the reason.
func (s *Session) Context() context.Context { return s.ctx }

// Serve sets how messages are written. Queued messages are written by a goroutine that lives as long as there are any:
// most sessions are silent most of the time, and one that waits would cost each of them a stack.
func (s *Session) Serve(write func(*fleetv1.ControllerMessage) error) {
	s.write = write
	s.started.Store(true)
	s.wake()
}

// wake starts a writer of the queued messages, unless one runs.
func (s *Session) wake() {
	if s.started.Load() && s.ctx.Err() == nil && len(s.out) > 0 && s.writing.CompareAndSwap(false, true) {
		task.Background("write session", s.drainQueue)
	}
}

func (s *Session) drainQueue() {
	// A message that is queued after the last look here is seen by the look that follows, or its sender finds no writer.
	defer s.wake()
	defer s.writing.Store(false)
	for m := s.Next(); m != nil; m = s.Next() {
		s.writeOne(m)
	}
}

func (s *Session) writeOne(m *fleetv1.ControllerMessage) {
	s.pen.Lock()
	defer s.pen.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	if err := s.write(m); err != nil {
		s.Close(err)
	}
}

// Finish ends the session. When it returns no goroutine writes any more, so that the stream may end. stuck reports
// whether a write was in progress, or the agent had stopped reading: a last message may not reach it.
func (s *Session) Finish(why error) (stuck bool) {
	s.Close(why)
	if stuck = !s.pen.TryLock(); stuck {
		s.pen.Lock()
	}
	defer s.pen.Unlock()
	return stuck || errors.Is(context.Cause(s.ctx), ErrSlow)
}

// Next takes a message off the queue; nil when it is empty.
func (s *Session) Next() *fleetv1.ControllerMessage {
	select {
	case m := <-s.out:
		return m
	default:
		return nil
	}
}

// Close ends the session.
func (s *Session) Close(why error) { s.cancel(why) }

// Send queues a message. An agent that does not read is cut off rather than buffered for.
func (s *Session) Send(m *fleetv1.ControllerMessage) bool {
	select {
	case <-s.ctx.Done():
		return false
	case s.out <- m:
		s.wake()
		return true
	default:
		s.Close(ErrSlow)
		return false
	}
}

// Beat records a sign of life.
func (s *Session) Beat(now time.Time) { s.beat.Store(now.UnixNano()) }

// LastBeat is the last sign of life.
func (s *Session) LastBeat() time.Time { return time.Unix(0, s.beat.Load()) }

// Unstored is the last sign of life, if the database does not have it. Stored records that it has one.
func (s *Session) Unstored() (beat time.Time, ok bool) {
	at := s.beat.Load()
	return time.Unix(0, at), at != s.stored.Load()
}

// Stored remembers which sign of life the database has.
func (s *Session) Stored(beat time.Time) { s.stored.Store(beat.UnixNano()) }

// CloneSuspect reports whether another machine has taken over this identity.
func (s *Session) CloneSuspect() bool { return s.clone.Load() != nil }

// OtherHardware returns what of that machine's hardware differs; "" without one.
func (s *Session) OtherHardware() string {
	if v := s.clone.Load(); v != nil {
		return v.String()
	}
	return ""
}

// Registry holds the sessions. It is safe for concurrent use.
type Registry struct {
	mu       sync.RWMutex
	sessions map[string]*Session // by agent id
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{sessions: map[string]*Session{}} }

// Add makes s the agent's session if no newer one is there. The one that it replaces is notified. On other hardware it
// stays open for its answer, which would prove a clone, and the caller closes it.
func (r *Registry) Add(s *Session) (old *Session, ok bool) {
	r.mu.Lock()
	old = r.sessions[s.AgentID]
	if old != nil && old.Epoch > s.Epoch {
		r.mu.Unlock()
		return nil, false
	}
	r.sessions[s.AgentID] = s
	r.mu.Unlock()
	if old == nil {
		return nil, true
	}
	old.tellSuperseded(s.Hardware, s.Epoch)
	return old, true
}

// Supersede notifies an agent's session that a newer one is open on another controller, and returns it; nil if none
// older is here.
func (r *Registry) Supersede(agentID, hardware string, epoch int64) (old *Session) {
	old = r.Get(agentID)
	if old == nil || old.Epoch >= epoch {
		return nil
	}
	old.tellSuperseded(hardware, epoch)
	return old
}

func (s *Session) tellSuperseded(hardware string, epoch int64) {
	if v := hwid.Compare(s.Hardware, hardware); v.Other() {
		s.clone.Store(&v)
	}
	s.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_Superseded{
		Superseded: &fleetv1.Superseded{ByEpoch: epoch},
	}})
}

const (
	// cloneAnswer is how long a superseded session on other hardware is listened to.
	cloneAnswer = 5 * time.Second
	// lastWord is how long any other one has to hear that it is over.
	lastWord = 100 * time.Millisecond
)

// Retire ends a superseded session: soon, or, on other hardware, after it has had time to answer. It does not wait.
func Retire(old *Session, c clock.Clock) {
	wait := lastWord
	if old.CloneSuspect() {
		wait = cloneAnswer
	}
	task.Background("retire session", func() {
		select {
		case <-old.Context().Done():
		case <-c.After(wait):
		}
		old.Close(ErrSuperseded)
	})
}

// Remove forgets a session that has ended.
func (r *Registry) Remove(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[s.AgentID] == s {
		delete(r.sessions, s.AgentID)
	}
}

// Get finds an agent's session, nil if it has none here.
func (r *Registry) Get(agentID string) *Session {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.sessions[agentID]
}

// All returns the sessions of this moment.
func (r *Registry) All() []*Session {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]*Session, 0, len(r.sessions))
	for _, s := range r.sessions {
		out = append(out, s)
	}
	return out
}

// Len counts the sessions.
func (r *Registry) Len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.sessions)
}

// CloseAll ends every session.
func (r *Registry) CloseAll(why error) {
	for _, s := range r.All() {
		s.Close(why)
	}
}

// CloseFingerprints ends the sessions that use these certificates and returns their number.
func (r *Registry) CloseFingerprints(fingerprints []string, why error) int {
	gone := map[string]bool{}
	for _, f := range fingerprints {
		gone[f] = true
	}
	n := 0
	for _, s := range r.All() {
		if gone[s.Fingerprint] {
			s.Close(why)
			n++
		}
	}
	return n
}
