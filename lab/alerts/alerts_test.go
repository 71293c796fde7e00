package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/process"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// gaugesIn is longer than a controller takes to count again, on a machine that does much else.
const gaugesIn = 2 * time.Minute

// prometheus is a server that scrapes one controller each second, with the rules of deploy/prometheus. They fire at
// once: how long each has to hold is for people, and the tests of TestRules hold it.
type prometheus struct {
	t       *testing.T
	address string
}

func startPrometheus(t *testing.T, target string) prometheus {
	t.Helper()
	dir := t.TempDir()
	atOnce := regexp.MustCompile(`(?m)^(\s+for:) .*$`).ReplaceAllString(read(t, rulesFile(t)), "$1 0s")
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\n"+
		"scrape_configs: [{job_name: ingot, static_configs: [{targets: [%q]}]}]\n", target)
	for name, text := range map[string]string{"rules.yaml": atOnce, "prometheus.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := prometheus{t, l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	said := &testkit.Buffer{}
	server, err := process.Start(process.Config{Path: "/usr/bin/prometheus", Output: said, Args: []string{
		"--config.file=" + filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=" + p.address,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Kill()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	return p
}

// get reads an answer of Prometheus' API. While the server starts there is none.
func (p prometheus) get(path string, query url.Values, into any) bool {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(into) == nil
}

// firing are the names of the alerts that fire, or false where Prometheus does not say.
func (p prometheus) firing() ([]string, bool) {
	var answer struct {
		Data struct {
			Alerts []struct {
				Labels struct{ Alertname string }
				State  string
			}
		}
	}
	if !p.get("/api/v1/alerts", nil, &answer) {
		return nil, false
	}
	out := []string{}
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" && !slices.Contains(out, a.Labels.Alertname) {
			out = append(out, a.Labels.Alertname)
		}
	}
	slices.Sort(out)
	return out, true
}

// fire waits until exactly these alerts fire.
func (p prometheus) fire(when string, names ...string) {
	p.t.Helper()
	var last []string
	want := fmt.Sprint(names)
	testkit.Eventually(p.t, gaugesIn, func() bool {
		now, ok := p.firing()
		if ok {
			last = now
		}
		return ok && fmt.Sprint(now) == want
	}, "%s: not the alerts %s but %v", when, strings.Join(names, " "), rig.Stringer(func() string { return fmt.Sprint(last) }))
}

// scraped waits until the controller has been.
func (p prometheus) scraped() {
	p.t.Helper()
	testkit.Eventually(p.t, gaugesIn, func() bool {
		var answer struct {
			Data struct{ Result []json.RawMessage }
		}
		return p.get("/api/v1/query", url.Values{"query": {"ingot_build_info"}}, &answer) && len(answer.Data.Result) == 1
	}, "the controller is not scraped")
}

// What happens to a real controller and its fleet fires what an operator is to see, and nothing else.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	m := c.NewMachine(t, harness.MachineOptions{Script: "reboot:never@1"})
	m.WaitConnected()
	p := startPrometheus(t, c.Addresses().HTTP)
	p.scraped()
	p.fire("nothing has happened")

	budgets := baremetalv1.NewBudgetServiceClient(c.Conn())
	harness.Must(t, budgets.FreezeFleet, &baremetalv1.FreezeFleetRequest{Comment: "rack 42 is losing disks"})
	p.fire("the fleet is frozen", "IngotFleetFrozen")
	harness.Must(t, c.Admin().ThawFleet, &baremetalv1.ThawFleetRequest{Comment: "it was one disk"})
	p.fire("the fleet is thawed")

	rig.Maintenance(t, c.Client, m.ID)
	rig.Reboot(t, c.Client, m.ID, "r", 3)
	p.fire("nobody knows what became of a reboot", "IngotMachineNeedsAttention")

	c.Process.Kill()
	p.fire("the controller is killed", "IngotControllerDown", "IngotNoController")
}
