package alerts

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/prometheus"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// gaugesIn is longer than a controller takes to count again, on a machine that does much else.
const gaugesIn = 2 * time.Minute

// fullDisk is right where the machine that runs the tests has a full disk. TestRules holds it.
const fullDisk = "IngotImageSpace"

// server is a Prometheus that scrapes one controller each second, with the rules of deploy/prometheus. They fire at
// once: how long each has to hold is for people, and the tests of TestRules hold it.
type server struct {
	*prometheus.Server
	t *testing.T
}

func startPrometheus(t *testing.T, target string) server {
	t.Helper()
	atOnce := regexp.MustCompile(`(?m)^(\s+for:) .*$`).ReplaceAllString(read(t, rulesFile(t)), "$1 0s")
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\n"+
		"scrape_configs: [{job_name: ingot, static_configs: [{targets: [%q]}]}]\n", target)
	return server{prometheus.Start(t, map[string]string{"rules.yaml": atOnce, "prometheus.yaml": config}), t}
}

// firing are the names of the alerts that fire, but for fullDisk; or false where Prometheus does not say.
func (p server) firing() ([]string, bool) {
	var answer struct {
		Data struct {
			Alerts []struct {
				Labels struct{ Alertname string }
				State  string
			}
		}
	}
	if !p.Get("/api/v1/alerts", nil, &answer) {
		return nil, false
	}
	out := []string{}
	for _, a := range answer.Data.Alerts {
		name := a.Labels.Alertname
		if a.State == "firing" && name != fullDisk && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, true
}

// fire waits until exactly these alerts fire.
func (p server) fire(when string, names ...string) {
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
func (p server) scraped() {
	p.t.Helper()
	testkit.Eventually(p.t, gaugesIn, func() bool {
		series, ok := p.Query("ingot_build_info")
		return ok && len(series) == 1
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
