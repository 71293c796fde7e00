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

// TestDocumentMatchesTheRegistry describes the collectors themselves: a vector without children is not in what a
// registry gathers.
func TestDocumentMatchesTheRegistry(t *testing.T) {
	var rows [][]string
	desc := regexp.MustCompile(`fqName: "([^"]+)", help: "(.*?)", (?:unit|constLabels): .*variableLabels: \{([^}]*)\}`)
	for _, c := range New(prometheus.NewRegistry()).collectors() {
		ch := make(chan *prometheus.Desc, 10)
		c.Describe(ch)
		close(ch)
		for d := range ch {
			m := desc.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("cannot read the description of %T", c)
			}
			rows = append(rows, []string{"`" + m[1] + "`", typeOf(c), strings.ReplaceAll(m[3], ",", ", "), m[2]})
		}
	}
	document.Check(t, "metrics.md", "Metrics", `The controller serves its metrics in the Prometheus text format at
`+"`/metrics` of its HTTP listener (default `127.0.0.1:8080`)"+`. The listener has no authentication: keep it on loopback
or behind a proxy that authenticates. Besides these there are the usual `+"`go_*` and `process_*`"+` metrics.

`+document.Table([]string{"metric", "type", "labels", "meaning"}, rows)+beside)
}

// beside is what else there is for Prometheus and Grafana; tests of lab/prometheus hold it.
const beside = `
## Dashboards

For Grafana 10 and newer: the fleet, the controllers, the sites, rollouts and budgets. ` + "`deploy/grafana`" + ` has them, and the
package of the controller has them below ` + "`/usr/share/doc/ingot-controller/examples/grafana/`" + `. Import the files and
choose the data source. They expect each controller as a target of job ` + "`ingot`" + `, as the [alerts](alerts.md) do.

## Machines as targets

` + "`GET /api/v1/prometheus-targets?port=9100&filter=…`" + ` on the [REST](rest.md) listener gives the machines of a filter (that of
[ListMachines](api.md)) in the form of http_sd_config, for exporters that run on them. It needs a token of scope read.

` + "```yaml" + `
scrape_configs:
  - job_name: machines
    http_sd_configs:
      - url: https://ingot.example.org:50055/api/v1/prometheus-targets?port=9100&filter=labels.env%3Dprod
        authorization: {type: Bearer, credentials_file: /etc/prometheus/ingot-token} # 2.42 has no default type here
        tls_config: {ca_file: /etc/prometheus/ingot-ca.pem}
` + "```" + `

Labels are ` + "`machine_id`, `site`, `rack`, `group`" + `, and ` + "`label_KEY`" + ` for each label of the machine, with an underscore for what
Prometheus takes in no name; of two keys that become one the first stays. A machine is scraped at the host of its
` + "`ssh_endpoint`" + `, else at the address where its site probes it, else at its ` + "`install_address`" + `, else at its id as a host name.
`

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
	if got := gather(t, r); got["ingot_machines"] != 2 || got["ingot_machines_total"] != 2 {
		t.Errorf("%d series, %d by the older name", got["ingot_machines"], got["ingot_machines_total"])
	}
	m.SetMachines([]MachineCount{{Phase: "READY", Count: 3}})
	if got := gather(t, r)["ingot_machines"]; got != 1 {
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
