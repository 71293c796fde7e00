package metrics

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// documented reads the table of docs/reference/metrics.md: name → "type, labels".
func documented(t *testing.T) map[string]string {
	b, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `(ingot_[a-z_]+)` \\| ([a-z]+) \\| ([a-z_, ]*) ?\\| .+ \\|$")
	for _, m := range row.FindAllStringSubmatch(string(b), -1) {
		out[m[1]] = m[2] + ": " + strings.TrimSpace(m[3])
	}
	return out
}

// registered asks the collectors themselves: a vector without children is not in what a registry gathers.
func registered(t *testing.T) map[string]string {
	out := map[string]string{}
	desc := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	for _, c := range New(prometheus.NewRegistry()).collectors() {
		ch := make(chan *prometheus.Desc, 1)
		c.Describe(ch)
		m := desc.FindStringSubmatch((<-ch).String())
		if m == nil {
			t.Fatalf("cannot read the description of %T", c)
		}
		out[m[1]] = typeOf(c) + ": " + strings.ReplaceAll(m[2], ",", ", ")
	}
	return out
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

func TestDocumentMatchesTheRegistry(t *testing.T) {
	docs, code := documented(t), registered(t)
	for name, what := range code {
		if docs[name] != what {
			t.Errorf("%s is %q, the document says %q", name, what, docs[name])
		}
	}
	for name := range docs {
		if _, ok := code[name]; !ok {
			t.Errorf("%s is in the document only", name)
		}
	}
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
