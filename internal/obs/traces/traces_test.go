package traces_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/obs/traces"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

func tracer(t *testing.T, address string, ratio float64) *traces.Tracer {
	t.Helper()
	tr, err := traces.New(traces.Config{OTLPEndpoint: address, Insecure: true, SampleRatio: ratio},
		traces.Service{Name: "test", Log: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr
}

// deaf takes connections and never answers.
func deaf(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // no connection to it is read
	return l.Addr().String()
}

// Without an endpoint there is no tracer, and calls of none allocate nothing.
func TestOffCostsNothing(t *testing.T) {
	off, err := traces.New(traces.Default(), traces.Service{})
	if err != nil || off != nil {
		t.Fatalf("%v, %v", off, err)
	}
	ctx, span := context.Background(), traces.Span{Name: traces.Job}
	if n := testing.AllocsPerRun(1000, func() {
		place, ok := off.Operation("op-1")
		if _, follows := off.Follow("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"); ok || follows ||
			off.Traceparent("op-1", "cmd-1") != "" {
			t.Error("it traces")
		}
		off.Record(place, span)
		traces.Concerns(ctx, "op-1")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	off.Close()
}

// The ids are what two versions have to agree on while they work on one operation.
func TestIDsFollowFromTheOperation(t *testing.T) {
	const operation, command = "op-01jf0c9v8xk3m5q7r9t1v3x5z7", "cmd-01jf0c9v8xk3m5q7r9t1v3x5z8"
	for what, c := range map[string][2]string{
		"trace":   {traces.TraceOf(operation).String(), "06ada797fed2966c3158710ff1ca0c70"},
		"root":    {traces.SpanOf(traces.Operation, operation).String(), "fde0a46b413bfec7"},
		"command": {traces.SpanOf(traces.Command, command).String(), "9f99a5a49cba75c5"},
		"agent":   {traces.SpanOf(traces.Agent, command).String(), "6e01517faff4d96b"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is %s, was %s", what, c[0], c[1])
		}
	}
}

func TestTraceparent(t *testing.T) {
	tr := tracer(t, deaf(t), 1)
	const operation, command = "op-1", "cmd-1"
	want := fmt.Sprintf("00-%s-%s-01", traces.TraceOf(operation), traces.SpanOf(traces.Command, command))
	got := tr.Traceparent(operation, command)
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	place, ok := tr.Follow(got)
	above, _ := tr.Operation(operation)
	if !ok || place != above.Below(traces.SpanOf(traces.Command, command)) {
		t.Errorf("it leads to %v, %t", place, ok)
	}
	for _, bad := range []string{
		"", "00", "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", // not sampled
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902bz-01",
	} {
		if _, ok := tr.Follow(bad); ok {
			t.Errorf("%q is followed", bad)
		}
	}
}

// Which operations are traced follows from their ids: everybody chooses the same ones.
func TestEverybodySamplesTheSame(t *testing.T) {
	one, other, fewer := tracer(t, deaf(t), .25), tracer(t, deaf(t), .25), tracer(t, deaf(t), .05)
	chosen := 0
	const of = 4000
	for range of {
		id := ids.New(ids.Operation)
		_, yes := one.Operation(id)
		_, also := other.Operation(id)
		_, rarely := fewer.Operation(id)
		if yes != also || rarely && !yes {
			t.Errorf("%s: %t, %t, %t", id, yes, also, rarely)
		}
		if yes {
			chosen++
		}
	}
	if math.Abs(float64(chosen)-of/4) > of/20 {
		t.Errorf("%d of %d are traced", chosen, of)
	}
}

// No caller waits for a receiver that does not answer, whatever is written, and the end waits for a second.
func TestNobodyWaitsForTheReceiver(t *testing.T) {
	tr, err := traces.New(traces.Config{OTLPEndpoint: deaf(t), Insecure: true, SampleRatio: 1},
		traces.Service{Name: "test", Log: testkit.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	const spans = 20_000 // several times what the queue holds
	begun := time.Now()
	for i := range spans {
		id := fmt.Sprint("op-", i)
		place, ok := tr.Operation(id)
		if !ok {
			t.Fatal("not traced")
		}
		tr.Record(place, traces.Span{Name: traces.Job, Start: begun, End: begun,
			Attributes: map[traces.Attribute]string{traces.OperationID: id}})
	}
	took := time.Since(begun)
	if took > 10*time.Second {
		t.Errorf("%d spans took %v", spans, took)
	}
	begun = time.Now()
	tr.Close()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the end took %v", took)
	}
}

func TestCheck(t *testing.T) {
	for field, c := range map[string]traces.Config{
		"":              {OTLPEndpoint: "collector.example.org:4317", CAFile: "/etc/ca.pem", SampleRatio: .5},
		"otlp_endpoint": {OTLPEndpoint: "https://collector.example.org"},
		"ca_file":       {Insecure: true, CAFile: "/etc/ca.pem"},
		"sample_ratio":  {SampleRatio: math.NaN()},
	} {
		problems := c.Check()
		if _, found := problems[field]; len(problems) > 1 || found != (field != "") {
			t.Errorf("%+v: %v", c, problems)
		}
	}
	none := filepath.Join(t.TempDir(), "none.pem")
	if err := os.WriteFile(none, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{none, none + ".gone"} {
		if _, err := traces.New(traces.Config{OTLPEndpoint: "h:1", CAFile: file, SampleRatio: 1},
			traces.Service{}); err == nil {
			t.Errorf("authorities of %s are taken", file)
		}
	}
}

// BenchmarkRecord is what a span costs where traces are on.
func BenchmarkRecord(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }() // no connection to it is read
	tr, err := traces.New(traces.Config{OTLPEndpoint: l.Addr().String(), Insecure: true, SampleRatio: 1},
		traces.Service{Name: "test", Log: testkit.Logger(b)})
	if err != nil {
		b.Fatal(err)
	}
	defer tr.Close()
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		place, _ := tr.Operation("op-1")
		tr.Record(place, traces.Span{Name: traces.Job, Start: now, End: now, Attributes: map[traces.Attribute]string{
			traces.OperationID: "op-1", traces.Attempt: "1", traces.ControllerID: "c-1",
		}})
	}
}

func TestReferenceTraces(t *testing.T) {
	rows := document.Constants(t, "internal/obs/traces", "Name")
	keys := document.Constants(t, "internal/obs/traces", "Attribute")
	document.Check(t, "traces.md", "Traces", "Controllers and agents write each operation as one trace of "+
		"OpenTelemetry, "+
		"and send it over OTLP (gRPC) to\na receiver such as the OpenTelemetry "+
		"Collector. It is off until both have an endpoint:\n\n"+
		"```yaml\ntraces: {otlp_endpoint: \"collector.example.org:4317\", ca_file: /etc/ingot/collector.pem}\n```\n\n"+
		"The [controller's](controller-config.md) and the "+
		"[agent's](agent-config.md) configuration take the same keys. A header\n"+
		"that the receiver asks for is given in the variable `OTEL_EXPORTER_OTLP_HEADERS`.\n\n"+
		"The ids of the trace and of its upper spans follow from the ids of "+
		"the operation and of its commands, so that a\n"+
		"trace survives each process. The trace of an operation is the first "+
		"16 bytes of SHA-256 over `ingot`, a zero byte,\n"+
		"`trace`, a zero byte, and the operation's id:\n\n"+
		"```bash\nprintf 'ingot\\0trace\\0%s' \"$operation\" | sha256sum | cut -c 1-32\n```\n\n"+
		"A call that brings a sampled `traceparent` (W3C Trace Context, as "+
		"metadata of gRPC or as a header of REST) has a span\n"+
		"in its caller's trace as well; that span and the one in the operation's trace link to each other.\n\n"+
		"What a process was in the middle of when it was killed has no span, "+
		"nor has what it had ended less than a second\n"+
		"before. A receiver that is away or slow costs the spans that 4,096 "+
		"places have no room for, and delays the end of a\n"+
		"process by a second. The installer sends none.\n\n"+
		"## Spans\n\n"+document.Table([]string{"span", "tells of"}, rows)+
		"\n## Attributes\n\nThere are no others. Values are ids, numbers, "+
		"names of the API and of the steps of plans: no parameter, message,\n"+
		"comment or output is in a span.\n\n"+
		document.Table([]string{"attribute", "meaning"}, keys))
}
