package traces

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/ingot-metal/ingot/internal/clock"
)

// mostConcerned bounds the operations of one call that get a span.
const mostConcerned = 16

// call gathers the operations that a client's call is about.
type call struct {
	mu         sync.Mutex
	operations []string
}

type callKey struct{}

// Concerns notes that the call of ctx has started, repeated or cancelled an operation; an empty id is none. Outside of
// a traced call it does nothing.
func Concerns(ctx context.Context, operationID string) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || operationID == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.operations) < mostConcerned {
		c.operations = append(c.operations, operationID)
	}
}

func (c *call) concerned() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.operations
}

// Unary writes a span for each call that is about an operation, into the trace of the operation. A call that brings a
// sampled traceparent has one in the trace of its caller too, whatever it is about; each leads to the other. codeOf
// returns the code of a handler's error.
func (t *Tracer) Unary(now clock.Clock, codeOf func(error) codes.Code) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		c, start := &call{}, now.Now()
		answer, err := next(context.WithValue(ctx, callKey{}, c), req)
		// gRPC's name is /service/method.
		service, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
		code := codeOf(err)
		s := Span{
			Name: Call, Of: service[strings.LastIndexByte(service, '.')+1:] + "/" + method, Kind: Server,
			Start: start, End: now.Now(), Attributes: map[Attribute]string{
				RPCSystem: "grpc", RPCService: service, RPCMethod: method, RPCCode: strconv.Itoa(int(code)),
			},
		}
		if code != codes.OK {
			s.Fault = code.String()
		}
		t.recordCall(s, callerOf(ctx), c.concerned())
		return answer, err
	}
}

// callerOf is the span of the caller, invalid where it has named none.
func callerOf(ctx context.Context) trace.SpanContext {
	if values := metadata.ValueFromIncomingContext(ctx, header); len(values) == 1 {
		return parse(values[0])
	}
	return trace.SpanContext{}
}

func (t *Tracer) recordCall(s Span, caller trace.SpanContext, operations []string) {
	if caller.IsValid() && caller.IsSampled() {
		here := Place{caller.TraceID(), NewSpanID()}
		own := s
		own.ID = here.above
		if len(operations) > 0 {
			p := Place{TraceOf(operations[0]), SpanOf(Operation, operations[0])}
			own.Link = p.context()
		}
		t.Record(here.Below(caller.SpanID()), own)
		s.Link = here.context()
	}
	for _, id := range operations {
		if p, ok := t.Operation(id); ok {
			s.Attributes[OperationID] = id
			t.Record(p, s)
		}
	}
}
