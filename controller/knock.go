package controller

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/tap"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/door"
	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	// strangers is how many calls that need no token are under way at a time, such as health checks, and strangerTime how long
	// one may take: the message of each may be of any size that a message may have. Watches of health may take any time, and
	// are fewer.
	strangers, watches = 32, 16
	strangerTime       = 5 * time.Second
	// refusals is how many calls without a token that counts one connection is good for.
	refusals = 100
)

// knock looks at the calls of the frontpage before their messages are read, so that those whom nobody knows cost no memory.
type knock struct {
	guard *auth.Guard
	conns *door.Connections
	log   *slog.Logger
	// observe is told of each call that was refused.
	observe func(method string, code codes.Code, took time.Duration)
	// calls and watched count what strangers have under way.
	calls, watched atomic.Int64
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
			k.log.Debug("call", "method", info.FullMethodName, "code", codes.Unauthenticated.String(), "reason", e.Reason, "message", e.Message)
			return ctx, failure.ToStatus(err).Err()
		case known:
			k.conns.Known(ctx)
			return ctx, nil
		}
		return k.stranger(ctx, info.FullMethodName)
	})
}

func (k *knock) stranger(ctx context.Context, method string) (context.Context, error) {
	count, most, cancel := &k.calls, int64(strangers), func() {}
	if method == healthv1.Health_Watch_FullMethodName {
		count, most = &k.watched, watches
	} else {
		ctx, cancel = context.WithTimeout(ctx, strangerTime)
	}
	if count.Add(1) > most {
		count.Add(-1)
		cancel()
		return ctx, failure.ToStatus(failure.Exhausted(door.ReasonOverloaded, "too many calls without a token are under way").WithRetry(time.Second)).Err()
	}
	context.AfterFunc(ctx, func() {
		cancel()
		count.Add(-1)
	})
	return ctx, nil
}
