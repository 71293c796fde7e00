package client

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/internal/clock"
)

// long holds the methods whose answer may take any time: they end with the caller's patience, and a connection that is
// gone is noticed by its pings.
var long = map[string]bool{
	pb.AdminService_AddImage_FullMethodName: true, pb.RolloutService_PreviewRollout_FullMethodName: true,
	pb.RolloutService_CreateRollout_FullMethodName: true, pb.AdminService_DiscoverBMCs_FullMethodName: true,
}

// RetryConfig configures the repetition of lost unary calls.
type RetryConfig struct {
	Clock clock.Clock
	// For is how long a call is repeated; then its last error stands.
	For time.Duration
	// Attempt bounds one try, so that an answer that never comes counts as lost; 0 is no bound.
	Attempt time.Duration
	// OnRetry is called once per call, before the first repetition.
	OnRetry func(error)
}

// Retry is an interceptor that repeats calls which may be repeated, with the same body and so with the same
// request id.
func Retry(cfg RetryConfig) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		var back apiclient.Backoff
		start, told, final := cfg.Clock.Now(), false, isOnce(opts) || !apiclient.Repeatable(method)
		limit := cfg.Attempt
		if long[method] {
			limit = 0
		}
		for {
			err := attempt(ctx, limit, func(ctx context.Context) error {
				return invoke(ctx, method, req, reply, cc, opts...)
			})
			if err == nil || ctx.Err() != nil || !apiclient.Transient(err) || final {
				return err
			}
			wait := max(back.Next(), apiclient.RetryAfter(err))
			if cfg.Clock.Now().Sub(start)+wait > cfg.For {
				return err
			}
			if !told {
				cfg.OnRetry(err)
				told = true
			}
			select {
			case <-ctx.Done():
				return err
			case <-cfg.Clock.After(wait):
			}
		}
	}
}

// onceOption marks a call that its caller repeats by itself.
type onceOption struct{ grpc.EmptyCallOption }

// Once keeps Retry from repeating a call.
func Once() grpc.CallOption { return onceOption{} }

func isOnce(opts []grpc.CallOption) bool {
	return slices.ContainsFunc(opts, func(o grpc.CallOption) bool {
		_, ok := o.(onceOption)
		return ok
	})
}

// attempt turns the end of one try's time into UNAVAILABLE, since the caller's own time is not over.
func attempt(ctx context.Context, limit time.Duration, call func(context.Context) error) error {
	if limit <= 0 {
		return call(ctx)
	}
	try, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := call(try)
	if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil {
		return status.Errorf(codes.Unavailable, "no answer within %s", limit)
	}
	return err
}
