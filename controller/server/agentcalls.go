package server

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/limit/ratelimit"
	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	// hostCalls and siteCalls are the calls of one agent that are under way at a time, without its streams of commands and
	// events.
	hostCalls, siteCalls = 6, 64
	// agentStreams are those streams of one agent: a session has two, and another session may take its place.
	agentStreams = 6
)

// agentCalls bounds the calls that one agent has under way, since each may hold a message. It is safe for concurrent
// use.
type agentCalls struct {
	sessions *session.Registry

	mu             sync.Mutex
	calls, streams map[string]int
}

func newAgentCalls(s *session.Registry) *agentCalls {
	return &agentCalls{sessions: s, calls: map[string]int{}, streams: map[string]int{}}
}

// options put the bounds before messages are read.
func (a *agentCalls) options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.InTapHandle(a.begin), grpc.StreamInterceptor(a.stream)}
}

// lasting reports whether a call is one of a session's streams. Those are counted without anything that lasts as long
// as they do.
func lasting(method string) bool {
	return method == fleetv1.AgentService_Commands_FullMethodName || method == fleetv1.AgentService_Events_FullMethodName
}

// peerAgent names the agent whose connection a call came on.
func peerAgent(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return ""
	}
	return agentOf(info.State)
}

// begin counts a call when its headers have been read.
func (a *agentCalls) begin(ctx context.Context, info *tap.Info) (context.Context, error) {
	agent := peerAgent(ctx)
	if lasting(info.FullMethodName) {
		return ctx, a.take(a.streams, agent, agentStreams)
	}
	most := hostCalls
	if s := a.sessions.Get(agent); s != nil && s.Role == "site" {
		most = siteCalls
	}
	if err := a.take(a.calls, agent, most); err != nil {
		return ctx, err
	}
	context.AfterFunc(ctx, func() { a.give(a.calls, agent) })
	return ctx, nil
}

func (a *agentCalls) take(of map[string]int, agent string, most int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if of[agent] >= most {
		return failure.ToStatus(failure.Exhausted(ratelimit.ReasonStreams,
			"this agent has %d calls under way; wait until some have ended", most)).Err()
	}
	of[agent]++
	return nil
}

func (a *agentCalls) give(of map[string]int, agent string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if of[agent]--; of[agent] <= 0 {
		delete(of, agent)
	}
}

// stream gives the place of a session's stream back when that has ended. It stands before all other interceptors, so
// that it is always reached.
func (a *agentCalls) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if lasting(info.FullMethod) {
		defer a.give(a.streams, peerAgent(s.Context()))
	}
	return next(srv, s)
}
