package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/domain/access"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/internal/testkit/document"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// dashboard is what Grafana needs of one:
// https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/.
type dashboard struct {
	UID, Title, Description string
	SchemaVersion           int
	Tags                    []string
	Time                    struct{ From, To string }
	Templating              struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ Type, UID string }
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct{ RefID, Expr, LegendFormat string }
}

// units are those of Grafana that are used.
var units = []string{"none", "short", "percentunit", "s", "bytes", "ops", "reqps"}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(document.Root(t), "deploy/grafana/*.json"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%d dashboards, %v", len(files), err)
	}
	out := map[string]dashboard{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(raw, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[filepath.Base(file)] = d
	}
	return out
}

// TestDashboards holds what Grafana takes, and what a reader needs: a title, a description and a unit everywhere.
func TestDashboards(t *testing.T) {
	t.Parallel()
	for file, d := range dashboards(t) {
		if want := "ingot-" + strings.TrimSuffix(file, ".json"); d.UID != want {
			t.Errorf("%s has the uid %q, not %s", file, d.UID, want)
		}
		if d.SchemaVersion != 39 || d.Title == "" || d.Description == "" || d.Time.From == "" || d.Time.To == "" {
			t.Errorf("%s: %+v", file, d)
		}
		if d.Templating.List[0].Type != "datasource" || d.Templating.List[0].Name != "datasource" {
			t.Errorf("%s asks for no data source", file)
		}
		var ids []int
		var titles []string
		taken := map[[2]int]string{}
		for _, p := range d.Panels {
			if p.Title == "" || p.Description == "" || !slices.Contains(units, p.FieldConfig.Defaults.Unit) ||
				p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 ||
				!slices.Contains([]string{"stat", "timeseries", "table"}, p.Type) {
				t.Errorf("%s: %+v", file, p)
			}
			if slices.Contains(ids, p.ID) || slices.Contains(titles, p.Title) {
				t.Errorf("%s has %d %s twice", file, p.ID, p.Title)
			}
			ids, titles = append(ids, p.ID), append(titles, p.Title)
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Errorf("%s: %s covers %s, or leaves the grid", file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

// filled puts values in the place of variables.
var filled = strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$site", ".*")

var (
	metricName = regexp.MustCompile(`\b(?:ingot|process|go)_\w+`)
	labelQuery = regexp.MustCompile(`label_values\((\w+), (\w+)\)`)
)

// TestDashboardsOnLiveController runs every query of every dashboard in a Prometheus that scrapes a controller with
// which
// something of each kind has happened. Each metric is there, and each query has an answer.
func TestDashboardsOnLiveController(t *testing.T) {
	t.Parallel()
	c := busy(t)
	p := Start(t, map[string]string{"prometheus.yaml": fmt.Sprintf("global: {scrape_interval: 1s}\n"+
		"scrape_configs: [{job_name: ingot, static_configs: [{targets: [%q]}]}]\n", c.Controller().Addresses().HTTP)})
	names := func() []string {
		var answer struct{ Data []string }
		p.Get("/api/v1/label/__name__/values", nil, &answer)
		return answer.Data
	}
	// Gauges that are counted every 30 s come last.
	testkit.Eventually(t, 2*time.Minute, func() bool {
		return slices.Contains(names(), "ingot_site_capacity_used_ratio") &&
			slices.Contains(names(), "ingot_budget_used_ratio")
	}, "the controller does not count")
	for file, d := range dashboards(t) {
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				query := filled.Replace(target.Expr)
				for _, name := range metricName.FindAllString(query, -1) {
					if !slices.Contains(names(), name) {
						t.Errorf("%s, %s: there is no %s", file, panel.Title, name)
					}
				}
				var series []Series
				testkit.Eventually(t, time.Minute, func() bool {
					var ok bool
					series, ok = p.Query(query)
					return ok && len(series) > 0
				}, "%s, %s: no answer to %s", file, panel.Title, query)
				for _, label := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
					if _, ok := series[0].Metric[label[1]]; !ok {
						t.Errorf("%s, %s: a series has no label %s: %v", file, panel.Title, label[1], series[0].Metric)
					}
				}
			}
		}
		for _, v := range d.Templating.List[1:] {
			m := labelQuery.FindStringSubmatch(string(v.Query))
			if m == nil {
				t.Errorf("%s: %s is no query of label values", file, v.Query)
				continue
			}
			if series, ok := p.Query(m[1]); !ok || len(series) == 0 || series[0].Metric[m[2]] == "" {
				t.Errorf("%s: %s has no values", file, v.Name)
			}
		}
	}
}

// busy is a controller with which something of each kind has happened that its metrics tell of.
func busy(t *testing.T) *harness.Cluster {
	t.Helper()
	const streams = 4
	c := harness.New(t, harness.Options{Configure: func(cfg *config.Config) {
		cfg.Webhooks.AllowLoopback, cfg.Clients.StreamsPerClient = true, streams
	}})
	told := make(chan struct{}, 1000)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { told <- struct{}{} }))
	t.Cleanup(receiver.Close)
	harness.Must(t, c.Admin().CreateWebhook, &baremetalv1.CreateWebhookRequest{Webhook: &baremetalv1.Webhook{
		WebhookId: "hook", Url: receiver.URL, Enabled: true,
	}})
	harness.Must(t, baremetalv1.NewBudgetServiceClient(c.Conn()).SetBudget, &baremetalv1.SetBudgetRequest{
		Budget: &baremetalv1.Budget{Name: "fleet", Domain: "fleet", AtOnce: 2, PerHour: 10},
	})
	m := c.NewMachine(t, harness.MachineOptions{Script: "netboot:fail-before", RepaveTime: time.Millisecond})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	reimage := harness.Must(t, c.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{
		MachineId: m.ID, RequestId: "reimage", ImageRef: "ubuntu-2204",
	})
	c.Wait(reimage.GetOperationId(), rig.Soon)
	netboot := harness.Must(t, c.Machines().NetbootMachine, &baremetalv1.NetbootMachineRequest{
		MachineId: m.ID, RequestId: "netboot", Mode: "PXE",
	})
	c.Wait(netboot.GetOperationId(), rig.Soon)
	if _, err := harness.Call(
		t,
		c.Machines().GetMachine,
		&baremetalv1.GetMachineRequest{MachineId: "m-none"},
	); err == nil {
		t.Fatal("a machine that there is not")
	}
	harness.Must(t, c.Admin().SetSite, &baremetalv1.SetSiteRequest{Site: "default", Segments: []*baremetalv1.Segment{{
		Name: "a", Interface: "lo", Address: "10.20.0.1/24", PoolStart: "10.20.0.100", PoolEnd: "10.20.0.199",
	}}})
	if _, err := c.Controller().Store().Sites.RecordSite(t.Context(), sitestore.SiteReport{
		Site: "default", LeasesSame: true,
		Segments: []*fleetv1.SegmentObservation{{Segment: "a", State: "up", PoolSize: 100, PoolUsed: 7}},
	}, time.Now()); err != nil {
		t.Fatal(err)
	}
	refused(t, c, streams)
	select {
	case <-told:
	case <-time.After(rig.Soon):
		t.Fatal("the webhook's receiver was told nothing")
	}
	return c
}

// refused has a client of its own ask for too many streams, and another connect without TLS.
func refused(t *testing.T, c *harness.Cluster, streams int) {
	t.Helper()
	secret, err := auth.AddToken(c.TokensFile(), "greedy", access.ScopeRead)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Controller().Reload(); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for i := range streams + 1 {
		watch, err := c.WithToken(secret).Operations().WatchOperations(ctx, &baremetalv1.WatchOperationsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if i == streams {
			if _, err := watch.Recv(); err == nil {
				t.Error("one stream too many was let in")
			}
		} else if _, err := watch.Header(); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := net.Dial("tcp", c.Controller().Addresses().Frontpage)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // the controller has closed it
	if _, err := conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	// The server answers with an error, and closes.
	_ = conn.SetReadDeadline(time.Now().Add(rig.Soon))
	_, _ = conn.Read(make([]byte, 64))
}
