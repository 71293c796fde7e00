package traces

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/credentials"
)

const (
	// batchTime is how long a span waits for others at most: a process that is killed loses what waits.
	batchTime = time.Second
	// batchSpans go to the receiver together at most, and queueSpans wait at most; those beyond are lost.
	batchSpans, queueSpans = 512, 4096
	// exportTime bounds one try to hand over a batch.
	exportTime = 5 * time.Second
	// closeTime bounds the last one, which the end of the process waits for.
	closeTime = time.Second
)

// Service is who writes spans.
type Service struct {
	// Name is ingot-controller or ingot-agent.
	Name, Version string
	// Instance distinguishes it from others of its name.
	Instance string
	Log      *slog.Logger
}

// Tracer writes spans. It is safe for concurrent use; a nil one writes none and costs nothing.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	sampler  sdk.Sampler
	// ratio is what the sampler samples.
	ratio float64
}

// New makes a Tracer, nil where no endpoint is given. It connects when there is something to send. The variables
// OTEL_EXPORTER_OTLP_HEADERS and OTEL_RESOURCE_ATTRIBUTES hold as everywhere.
func New(c Config, s Service) (*Tracer, error) {
	if c.OTLPEndpoint == "" || c.SampleRatio == 0 {
		return nil, nil
	}
	roots, err := c.Roots()
	if err != nil {
		return nil, err
	}
	security := otlptracegrpc.WithTLSCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots,
		MinVersion: tls.VersionTLS12}))
	if c.Insecure {
		security = otlptracegrpc.WithInsecure()
	}
	exporter, err := otlptracegrpc.New(context.Background(), otlptracegrpc.WithEndpoint(c.OTLPEndpoint), security,
		otlptracegrpc.WithTimeout(exportTime), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: exportTime, MaxElapsedTime: 2 * exportTime,
		}))
	if err != nil {
		return nil, fmt.Errorf("make the exporter of traces: %w", err)
	}
	t := &Tracer{sampler: sdk.TraceIDRatioBased(c.SampleRatio), ratio: c.SampleRatio}
	t.provider = sdk.NewTracerProvider(
		sdk.WithBatcher(&exporting{SpanExporter: exporter, log: s.Log}, sdk.WithBatchTimeout(batchTime),
			sdk.WithMaxExportBatchSize(batchSpans), sdk.WithMaxQueueSize(queueSpans), sdk.WithExportTimeout(exportTime)),
		sdk.WithSampler(sdk.AlwaysSample()), // a span that is not sampled is not begun
		sdk.WithIDGenerator(ids{}),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", s.Name),
			attribute.String("service.version", s.Version), attribute.String("service.instance.id", s.Instance))),
	)
	t.tracer = t.provider.Tracer("github.com/ingot-metal/ingot")
	return t, nil
}

// samples reports whether a trace is one of those that are written, which follows from its id alone.
func (t *Tracer) samples(id trace.TraceID) bool {
	return t.ratio >= 1 || t.sampler.ShouldSample(sdk.SamplingParameters{TraceID: id}).Decision == sdk.RecordAndSample
}

// Close hands over what waits, as far as the receiver takes it within a second.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // what could not be handed over has been told
}

// exporting logs once that the receiver takes nothing, and once that it does again.
type exporting struct {
	sdk.SpanExporter
	log     *slog.Logger
	failing atomic.Bool
}

// ExportSpans implements sdk.SpanExporter.
func (e *exporting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !e.failing.Swap(true):
		e.log.Warn("the receiver of traces takes none; they are lost until it does", "error", err.Error())
	case err == nil && e.failing.Swap(false):
		e.log.Info("the receiver takes traces again")
	}
	return nil
}

// Kind is a span's role between processes; the zero value is none.
type Kind trace.SpanKind

// The roles: who serves, who has it served, who hands over, and who takes.
const (
	Server   = Kind(trace.SpanKindServer)
	Client   = Kind(trace.SpanKindClient)
	Producer = Kind(trace.SpanKindProducer)
	Consumer = Kind(trace.SpanKindConsumer)
)

// Span is a piece of work that has ended.
type Span struct {
	Name Name
	// Of follows the name, where several kinds are distinguished.
	Of string
	// ID is random where it is not given.
	ID         SpanID
	Kind       Kind
	Start, End time.Time
	// Fault is the reason why it did not succeed; empty where it did.
	Fault      string
	Attributes map[Attribute]string
	Events     []Event
	// Link leads to a span of another trace.
	Link trace.SpanContext
}

// Event is a moment of a span.
type Event struct {
	Name       string
	At         time.Time
	Attributes map[Attribute]string
}

// Record writes a span. It never waits.
func (t *Tracer) Record(p Place, s Span) {
	if t == nil {
		return
	}
	ctx := withIDs(context.Background(), p.trace, s.ID)
	if p.above.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, p.context())
	}
	name := string(s.Name)
	if s.Of != "" {
		name += " " + s.Of
	}
	options := []trace.SpanStartOption{trace.WithTimestamp(s.Start), trace.WithSpanKind(trace.SpanKind(s.Kind))}
	if s.Link.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: s.Link}))
	}
	_, span := t.tracer.Start(ctx, name, options...)
	span.SetAttributes(attributes(s.Attributes)...)
	if s.Fault != "" {
		span.SetStatus(codes.Error, s.Fault)
	}
	for _, e := range s.Events {
		span.AddEvent(e.Name, trace.WithTimestamp(e.At), trace.WithAttributes(attributes(e.Attributes)...))
	}
	span.End(trace.WithTimestamp(s.End))
}

// attributes drops empty values.
func attributes(m map[Attribute]string) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(m))
	for k, v := range m {
		if v != "" {
			out = append(out, attribute.String(string(k), v))
		}
	}
	return out
}

// ids returns the ids for a span that its context names.
type ids struct{}

type idsKey struct{}

type named struct {
	trace trace.TraceID
	span  SpanID
}

func withIDs(ctx context.Context, t trace.TraceID, s SpanID) context.Context {
	return context.WithValue(ctx, idsKey{}, named{t, s})
}

// NewIDs implements sdk.IDGenerator, for a span with none above it.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, SpanID) {
	n, _ := ctx.Value(idsKey{}).(named)
	return n.trace, orRandom(n.span)
}

// NewSpanID implements sdk.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) SpanID {
	n, _ := ctx.Value(idsKey{}).(named)
	return orRandom(n.span)
}

// NewSpanID is a random one, for a span that others are below of before it is written.
func NewSpanID() SpanID { return orRandom(SpanID{}) }

func orRandom(id SpanID) SpanID {
	for !id.IsValid() {
		n := rand.Uint64()
		for i := range id {
			id[i] = byte(n >> (8 * i))
		}
	}
	return id
}
