package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// once holds the methods that may not be sent twice: a repeat would make a second token or event, or meet a state that
// the first has already changed. Every other unary method is a read, carries a request id, or sets a value. An
// UpdateWebhook that makes a secret anew is for its caller to repeat.
var once = map[string]bool{
	baremetalv1.AdminService_IssueBootstrapToken_FullMethodName: true,
	baremetalv1.AdminService_CreateAPIToken_FullMethodName:      true,
	baremetalv1.AdminService_SettleCommand_FullMethodName:       true,
	baremetalv1.AdminService_CreateWebhook_FullMethodName:       true,
	baremetalv1.AdminService_RedeliverWebhook_FullMethodName:    true,
	baremetalv1.AdminService_TestWebhook_FullMethodName:         true,
	// It sends a password to BMCs.
	baremetalv1.AdminService_DiscoverBMCs_FullMethodName: true,
	// It acknowledges failures, of which there may be more meanwhile.
	baremetalv1.RolloutService_ResumeRollout_FullMethodName: true,
}

// Repeatable reports whether a call of the method, such as baremetalv1.MachineService_RebootMachine_FullMethodName, may
// be sent again when its answer was lost.
func Repeatable(method string) bool { return !once[method] }

// Backoff grows from a quarter of a second to five, with jitter. The zero value is ready.
type Backoff struct{ tries int }

// Next is how long to wait before the next try.
func (b *Backoff) Next() time.Duration {
	d := min(250*time.Millisecond<<min(b.tries, 5), 5*time.Second)
	b.tries++
	return d/2 + rand.N(d/2)
}

// Reset starts from the beginning, after a try that worked.
func (b *Backoff) Reset() { b.tries = 0 }

// repeat is an interceptor that sends a call again which may be sent twice, while the error is transient.
func repeat(patience time.Duration) grpc.UnaryClientInterceptor {
	if patience == 0 {
		patience = time.Minute
	}
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		var back Backoff
		start := time.Now()
		for {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if err == nil || !Repeatable(method) || !Transient(err) {
				return err
			}
			wait := max(back.Next(), RetryAfter(err))
			if time.Since(start)+wait > patience || !rest(ctx, wait) {
				return err
			}
		}
	}
}

// rest waits, and reports whether the context is still good.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// maxRequestID is the length that the API allows, in bytes.
const maxRequestID = 128

// RequestID makes the id of a piece of work out of what it means, such as "deploy", "v2.1", "m-1": the same words are
// the same id, however often and wherever the program runs, so that the work happens once. What a request id cannot
// hold becomes an underscore, and a long one ends in a hash of all words.
func RequestID(words ...string) string {
	id := strings.Join(words, "-")
	clean := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, id)
	if clean == id && len(id) <= maxRequestID {
		return id
	}
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	hash := "-" + hex.EncodeToString(sum[:8])
	return clean[:min(len(clean), maxRequestID-len(hash))] + hash
}
