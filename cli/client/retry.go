package client

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/clock"
)

// once holds the methods that may not be sent twice: a repeat would make a second token or event, or meet a state that
// the first has already changed. Every other unary method is a read, carries a request id, or sets a value; the one
// call of theirs that makes something anew (a secret of a webhook) carries Once.
var once = map[string]bool{
	pb.AdminService_IssueBootstrapToken_FullMethodName: true,
	pb.AdminService_SettleCommand_FullMethodName:       true,
	pb.AdminService_CreateWebhook_FullMethodName:       true,
	pb.AdminService_RedeliverWebhook_FullMethodName:    true,
	pb.AdminService_TestWebhook_FullMethodName:         true,
	// It sends a password to BMCs.
	pb.AdminService_DiscoverBMCs_FullMethodName: true,
	// It acknowledges failures, of which there may be more meanwhile.
	pb.RolloutService_ResumeRollout_FullMethodName: true,
}

// long holds the methods whose answer may take any time: they end with the caller's patience, and a connection that is
// gone is noticed by its pings.
var long = map[string]bool{
	pb.AdminService_AddImage_FullMethodName: true, pb.RolloutService_PreviewRollout_FullMethodName: true,
	pb.RolloutService_CreateRollout_FullMethodName: true, pb.AdminService_DiscoverBMCs_FullMethodName: true,
}

// Repeatable says whether a call of the method may be sent again when its answer was lost.
func Repeatable(method string) bool { return !once[method] }

// passing are the reasons that a moment cures.
var passing = map[pb.Reason]bool{
	pb.Reason_RATE_LIMITED:          true,
	pb.Reason_TOO_MANY_STREAMS:      true,
	pb.Reason_CONTROLLER_OVERLOADED: true,
	pb.Reason_SLOW_READER:           true,
	pb.Reason_DATABASE_UNAVAILABLE:  true,
	pb.Reason_CONTROLLER_DRAINING:   true,
	pb.Reason_CONTROLLER_LEASE_LOST: true,
	pb.Reason_DATABASE_IN_DOUBT:     true,
	pb.Reason_ROLES_CHANGED:         true,
}

// Transient says whether an error speaks of the connection or the moment rather than of the request.
func Transient(err error) bool {
	if errors.Is(err, io.EOF) {
		return true
	}
	st, ok := status.FromError(err)
	if !ok {
		return false
	}
	switch st.Code() {
	case codes.Unavailable:
		// A certificate that does not verify now will not verify in a second either.
		return !strings.Contains(st.Message(), "authentication handshake failed")
	case codes.ResourceExhausted, codes.Aborted:
		// gRPC uses RESOURCE_EXHAUSTED for oversized messages too, which stay oversized.
		return passing[Reason(err)]
	case codes.Unauthenticated:
		// The next call brings a renewed token, or says that there is none.
		return Reason(err) == pb.Reason_SIGN_ON_EXPIRED
	case codes.Internal, codes.Unknown:
		return strings.Contains(st.Message(), "RST_STREAM") || strings.Contains(st.Message(), "unexpected EOF")
	}
	return false
}

// Backoff grows from a quarter of a second to five, with jitter.
type Backoff struct{ tries int }

// Next is how long to wait before the next try.
func (b *Backoff) Next() time.Duration {
	d := min(250*time.Millisecond<<min(b.tries, 5), 5*time.Second)
	b.tries++
	return d/2 + rand.N(d/2)
}

// Reset starts from the beginning, after a try that worked.
func (b *Backoff) Reset() { b.tries = 0 }

// RetryConfig says how lost unary calls are repeated.
type RetryConfig struct {
	Clock clock.Clock
	// For is how long a call is repeated; then its last error stands.
	For time.Duration
	// Attempt bounds one try, so that an answer that never comes counts as lost; 0 is no bound.
	Attempt time.Duration
	// OnRetry is told once per call, before the first repetition.
	OnRetry func(error)
}

// Retry is an interceptor that repeats calls which may be repeated, with the same body and so with the same
// request id.
func Retry(cfg RetryConfig) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		var back Backoff
		start, told, final := cfg.Clock.Now(), false, isOnce(opts) || !Repeatable(method)
		limit := cfg.Attempt
		if long[method] {
			limit = 0
		}
		for {
			err := attempt(ctx, limit, func(ctx context.Context) error {
				return invoke(ctx, method, req, reply, cc, opts...)
			})
			if err == nil || ctx.Err() != nil || !Transient(err) || final {
				return err
			}
			wait := max(back.Next(), said(err))
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

// said is how long the server asks to wait; 0 when it does not say.
func said(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
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
