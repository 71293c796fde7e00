package traces

import (
	"context"
	"crypto/sha256"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// SpanID identifies a span in its trace.
type SpanID = trace.SpanID

// TraceOf is the trace of an operation.
func TraceOf(operationID string) (id trace.TraceID) {
	copy(id[:], digest("trace", operationID))
	return id
}

// SpanOf is the span of an operation, of a command, or of an agent's work on a command, by their name and id.
func SpanOf(n Name, of string) (id SpanID) {
	copy(id[:], digest(string(n), of))
	return id
}

// digest of what an id is for. An id of zeros is invalid, and as likely as any other digest.
func digest(what, id string) []byte {
	sum := sha256.Sum256([]byte("ingot\x00" + what + "\x00" + id))
	return sum[:]
}

// Place is where a span belongs: a trace, and the span above it.
type Place struct {
	trace trace.TraceID
	above SpanID
}

// Below is the same trace, below another span.
func (p Place) Below(above SpanID) Place { return Place{p.trace, above} }

// context is that of the span above, as of a process elsewhere.
func (p Place) context() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: p.trace, SpanID: p.above, TraceFlags: trace.FlagsSampled, Remote: true,
	})
}

// Operation returns the place below an operation. It reports whether the operation is traced: without a Tracer none is.
func (t *Tracer) Operation(operationID string) (Place, bool) {
	if t == nil {
		return Place{}, false
	}
	p := Place{TraceOf(operationID), SpanOf(Operation, operationID)}
	return p, t.samples(p.trace)
}

// RootPlace is the place of the operation's own span, with none above it.
func RootPlace(operationID string) Place { return Place{trace: TraceOf(operationID)} }

// header of the W3C Trace Context, which is also the key in gRPC's metadata.
const header = "traceparent"

// Traceparent is the place below a command as the W3C Trace Context writes it; empty where the operation is not traced.
func (t *Tracer) Traceparent(operationID, commandID string) string {
	p, ok := t.Operation(operationID)
	if !ok {
		return ""
	}
	p.above = SpanOf(Command, commandID)
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithRemoteSpanContext(context.Background(), p.context()), carrier)
	return carrier[header]
}

// Follow returns the place that a traceparent names. It reports whether spans must be written there.
func (t *Tracer) Follow(traceparent string) (Place, bool) {
	if t == nil || traceparent == "" {
		return Place{}, false
	}
	sc := parse(traceparent)
	return Place{sc.TraceID(), sc.SpanID()}, sc.IsValid() && sc.IsSampled() && t.samples(sc.TraceID())
}

// parse returns an invalid context for a text that is no traceparent.
func parse(traceparent string) trace.SpanContext {
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(),
		propagation.MapCarrier{header: traceparent}))
}
