package metrics

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/ingot-metal/ingot/internal/testkit/document"
)

// TestDocumentMatchesTheRegistry describes the collectors themselves: a vector without children is not in what a registry gathers.
func TestDocumentMatchesTheRegistry(t *testing.T) {
	var rows [][]string
	desc := regexp.MustCompile(`fqName: "([^"]+)", help: "(.*?)", (?:unit|constLabels): .*variableLabels: \{([^}]*)\}`)
	for _, c := range New(prometheus.NewRegistry()).collectors() {
		ch := make(chan *prometheus.Desc, 1)
		c.Describe(ch)
		m := desc.FindStringSubmatch((<-ch).String())
		if m == nil {
			t.Fatalf("cannot read the description of %T", c)
		}
		rows = append(rows, []string{"`" + m[1] + "`", typeOf(c), strings.ReplaceAll(m[3], ",", ", "), m[2]})
	}
	document.Check(t, "metrics.md", "Metrics", `The controller serves its metrics in the Prometheus text format at
`+"`/metrics` of its HTTP listener (default `127.0.0.1:8080`)"+`. The listener has no authentication: keep it on loopback
or behind a proxy that authenticates. Besides these there are the usual `+"`go_*` and `process_*`"+` metrics.

`+document.Table([]string{"metric", "type", "labels", "meaning"}, rows))
}

func typeOf(c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case *prometheus.GaugeVec, *replaced:
		return "gauge"
	case interface{ Dec() }: // a Gauge has all the methods of a Counter, and this one
		return "gauge"
	case prometheus.Counter:
		return "counter"
	}
	return fmt.Sprintf("%T", c)
}

func gather(t *testing.T, r *prometheus.Registry) map[string]int {
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, f := range families {
		out[f.GetName()] = len(f.GetMetric())
	}
	return out
}

func TestMachineCountsAreReplaced(t *testing.T) {
	r := NewRegistry()
	m := New(r)
	m.SetMachines([]MachineCount{{Phase: "READY", Count: 2}, {Phase: "MAINTENANCE", Count: 1}})
	if got := gather(t, r)["ingot_machines_total"]; got != 2 {
		t.Errorf("%d series", got)
	}
	m.SetMachines([]MachineCount{{Phase: "READY", Count: 3}})
	if got := gather(t, r)["ingot_machines_total"]; got != 1 {
		t.Errorf("%d series after one was gone", got)
	}
}

func TestObserveCall(t *testing.T) {
	r := NewRegistry()
	m := New(r)
	m.ObserveCall("/x.S/Get", codes.NotFound, time.Millisecond)
	got := gather(t, r)
	if got["ingot_rpc_seconds"] != 1 || got["go_goroutines"] != 1 {
		t.Errorf("gathered %v", got)
	}
}
