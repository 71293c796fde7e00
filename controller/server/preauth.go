package server

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/limit/ratelimit"
	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	// strangers is how many calls that need no token are under way at a time, such as health checks, and strangerTime how
	// long one may take: the message of each may be of any size that a message may have. Watches of health may take any
	// time.
	strangers, watches = 8, 64
	strangerTime       = 5 * time.Second
	// refusals is how many calls without a token that counts one connection is good for.
	refusals = 100
)

// knock looks at the calls of the frontpage before their messages are read, so that calls without a known
// caller cost no memory.
type knock struct {
	guard *auth.Guard
	conns *ratelimit.Listener
	log   *slog.Logger
	// observe is told of each call that was refused.
	observe func(method string, code codes.Code, took time.Duration)
	// calls and watched are what strangers have under way.
	calls, watched *ratelimit.AnonymousCalls
}

func (s *Servers) knock(g auth.GuardConfig) *knock {
	return &knock{
		guard: auth.NewGuard(g), conns: s.bounded.frontpage, log: s.cfg.Logger, observe: s.cfg.Metrics.ObserveCall,
		calls: ratelimit.NewAnonymousCalls(strangers, strangerTime), watched: ratelimit.NewAnonymousCalls(watches, 0),
	}
}

// option puts it before everything else. It runs on the goroutine that reads a connection, and so it must not wait.
func (k *knock) option() grpc.ServerOption {
	return grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
		known, err := k.guard.Knock(ctx, info.FullMethodName)
		switch {
		case err != nil:
			k.conns.Refused(ctx)
			e := failure.From(err)
			k.observe(info.FullMethodName, codes.Unauthenticated, 0)
			k.log.Debug("call", "method", info.FullMethodName, "code", codes.Unauthenticated.String(), "reason", e.Reason,
				"message", e.Message)
			return ctx, failure.ToStatus(err).Err()
		case known:
			k.conns.Known(ctx)
			return ctx, nil
		}
		k.conns.Requested(ctx)
		if info.FullMethodName == healthv1.Health_Watch_FullMethodName {
			return k.watched.Enter(ctx), nil
		}
		return k.calls.Enter(ctx), nil
	})
}

// rest is the same for a request of REST, whose body has not been read.
func (k *knock) rest(ctx context.Context, method string, authorization []string) error {
	md := metadata.MD{"authorization": authorization}
	if len(authorization) == 0 {
		md = metadata.MD{}
	}
	known, err := k.guard.Knock(metadata.NewIncomingContext(ctx, md), method)
	switch {
	case err != nil:
		k.conns.Refused(ctx)
		return err
	case known:
		k.conns.Known(ctx)
	}
	return nil
}

// enrolmentBounds bound the calls of the enrolment listener, where no caller is known: the messages that are being
// received by their number, and those that have come by their size.
func (s *Servers) enrolmentBounds() []grpc.ServerOption {
	calls := ratelimit.NewAnonymousCalls(s.cfg.Config.Strangers.EnrolmentCalls, enrolmentTime)
	var held atomic.Int64
	return []grpc.ServerOption{
		grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) {
			s.bounded.enrolment.Requested(ctx)
			return calls.Enter(ctx), nil
		}),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any,
			error) {
			calls.Received(ctx)
			m, ok := r.(proto.Message)
			if !ok {
				return next(ctx, r)
			}
			size := int64(proto.Size(m))
			defer held.Add(-size)
			if held.Add(size) > enrolmentBytes {
				return nil, failure.Exhausted(ratelimit.ReasonOverloaded,
					"too many enrolments are under way").WithRetry(time.Second)
			}
			return next(ctx, r)
		}),
	}
}
