package silence

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

const (
	// agentless is how many machines only the site's agent observes, and own how many have an agent of their own.
	agentless, own = 300, 4
	site           = "dallas"
	// enough is far more than a silence takes to be noticed, on a machine that does ten other things.
	enough = 2 * time.Minute
)

// events counts the events that a receiver of webhooks got, by type.
type events struct {
	mu     sync.Mutex
	counts map[string]int
}

func (e *events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var event struct{ Type string }
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &event)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts[event.Type]++
}

func (e *events) of(eventType string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts[eventType]
}

// machines are all events of machines.
func (e *events) machines() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for t, count := range e.counts {
		if strings.HasPrefix(t, "machine.") {
			n += count
		}
	}
	return n
}

// place is a site whose agent is a process, and its machines.
type place struct {
	*harness.Cluster

	t      *testing.T
	site   *harness.Machine
	agent  *harness.Process
	way    *harness.Relay // from the site's agent to the controller
	other  *harness.Cluster
	events *events
}

func name(i int) string { return fmt.Sprintf("m-%03d", i) }

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, events: &events{counts: map[string]int{}}}
	receiver := httptest.NewTLSServer(p.events)
	t.Cleanup(receiver.Close)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	options := harness.Options{Configure: func(cfg *config.Config) {
		cfg.Webhooks.AllowLoopback, cfg.Webhooks.CAFile = true, authority
		cfg.Agents.HeartbeatInterval.Duration, cfg.Agents.MissedHeartbeats = 2*time.Second, 5
	}}
	p.Cluster = harness.New(t, options)
	p.way = harness.NewRelay(t, "tcp", p.Fleet.Address())
	world, err := sim.OpenWorld(sim.WorldConfig{Dir: t.TempDir(), Delay: time.Millisecond, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	p.site = p.NewSite(t, site, world, harness.MachineOptions{ID: "site-agent", Stopped: true, Delay: time.Millisecond,
		Lines: "addresses: [" + p.way.Address() + "]\n"})
	p.agent = p.site.AgentProcess("")
	p.site.WaitConnected()
	for i := range own {
		p.NewMachine(t, harness.MachineOptions{ID: fmt.Sprintf("own-%d", i), SiteToo: site}).WaitConnected()
	}
	p.takeIn(agentless)
	p.awaitIdle(agentless+own, enough)
	if code, out := p.Ingot("webhook", "create", receiver.URL+"/hook", "--name", "hook"); code != 0 {
		t.Fatal(out)
	}
	p.other = p.Another(t, options)
	return p
}

// takeIn reimages machines without an agent and takes them into service, 32 at once.
func (p *place) takeIn(n int) {
	p.t.Helper()
	for i := range n {
		p.Register(&baremetalv1.Machine{MachineId: name(i), Spec: &baremetalv1.MachineSpec{Provider: "fake", Site: site}})
	}
	for i := range own {
		p.work(fmt.Sprintf("own-%d", i), false)
	}
	g, _ := task.New(p.t.Context())
	for part := range 32 {
		g.Go("take in machines", func(context.Context) error {
			for i := part; i < n; i += 32 {
				p.work(name(i), true)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		p.t.Fatal(err)
	}
}

// work takes a machine through maintenance, and reimages it there.
func (p *place) work(id string, reimage bool) {
	rig.Maintenance(p.t, p.Client, id)
	if reimage {
		op := harness.Must(p.t, p.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{
			MachineId: id, RequestId: "image", ImageRef: "ubuntu-2204", TimeoutSeconds: 600})
		rig.Ended(p.t, p.Wait(op.GetOperationId(), enough), rig.Succeeded, "")
	}
	op := harness.Must(p.t, p.Machines().ExitMaintenance,
		&baremetalv1.ExitMaintenanceRequest{MachineId: id, RequestId: "exit"})
	p.Wait(op.GetOperationId(), enough)
}

func (p *place) count(filter string) int {
	return int(harness.Must(p.t, p.Machines().CountMachines,
		&baremetalv1.CountMachinesRequest{Filter: filter}).GetTotal())
}

// awaitIdle waits until exactly so many machines are IDLE, and returns how long that took.
func (p *place) awaitIdle(want int, limit time.Duration) time.Duration {
	p.t.Helper()
	begin := time.Now()
	testkit.Eventually(p.t, limit, func() bool { return p.count("effective_state=IDLE") == want },
		"not %d machines are idle: %v", want, rig.Stringer(func() string { _, out := p.Ingot("status"); return out }))
	return time.Since(begin)
}

// TestASilentSite kills the agent of a site, makes it stand still, cuts it off, and brings it back each time. Two
// controllers report the same: the one with the agent's session, and one that no agent calls.
func TestASilentSite(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for n, c := range []struct {
		name        string
		begin, back func()
	}{
		{"killed", p.agent.Kill, func() { p.agent = p.site.AgentProcess("") }},
		{"paused", func() { p.agent.Stand() }, func() { p.agent.Continue() }},
		{"cut", p.way.Freeze, p.way.Thaw},
	} {
		cursor := harness.Must(t, p.Machines().ListMachines, &baremetalv1.ListMachinesRequest{PageSize: 1000}).GetNextCursor()
		c.begin()
		t.Logf("%s: unknown after %v", c.name, p.awaitIdle(own, enough).Round(100*time.Millisecond))
		p.reported(c.name)
		p.byTheOther().reported(c.name + ", by the other controller")
		if changed := p.changedSince(cursor); changed < agentless {
			t.Errorf("%s: the cursor has %d machines", c.name, changed)
		}
		testkit.Eventually(t, enough, func() bool { return p.events.of("site.silent") == n+1 }, "%s: no event", c.name)
		c.back()
		t.Logf("%s: known again after %v", c.name, p.awaitIdle(agentless+own, enough).Round(100*time.Millisecond))
		testkit.Eventually(t, enough, func() bool { return p.events.of("site.heard") == n+1 }, "%s: no event", c.name)
		if n := p.count("conditions.Reachable=unknown"); n != 0 {
			t.Errorf("%s: Reachable of %d machines stays unknown", c.name, n)
		}
		if causes := p.causes(); len(causes) != 0 {
			t.Errorf("%s: causes are left: %v", c.name, causes)
		}
	}
	if n := p.events.machines(); n != 0 {
		t.Errorf("%d events of machines", n)
	}
	if silent, heard := p.events.of("site.silent"), p.events.of("site.heard"); silent != 3 || heard != 3 {
		t.Errorf("%d events of silence, %d of its end", silent, heard)
	}
}

// byTheOther is the place as the other controller reports it.
func (p *place) byTheOther() *place {
	other := *p
	other.Cluster = p.other
	return &other
}

// changedSince counts the machines that a reconcile hands out.
func (p *place) changedSince(cursor string) (n int) {
	for {
		r := harness.Must(p.t, p.Machines().ListMachines, &baremetalv1.ListMachinesRequest{Cursor: cursor, PageSize: 1000})
		if len(r.GetMachines()) == 0 {
			return n
		}
		n, cursor = n+len(r.GetMachines()), r.GetNextCursor()
	}
}

func (p *place) causes() []*baremetalv1.SharedCause {
	return harness.Must(p.t, p.Machines().ExplainMachines, &baremetalv1.ExplainMachinesRequest{}).GetSharedCauses()
}

// reported compares the API's report while the site is silent.
func (p *place) reported(when string) {
	p.t.Helper()
	agentID := p.site.Identity().AgentID
	m := p.Machine(name(7)).GetStatus()
	c := rig.Condition(p.Machine(name(7)), "Reachable")
	if c.GetKnown() || c.GetStatus() || c.GetObservedBy() != agentID || c.GetObservedAt() == nil ||
		c.GetReason() != "SITE_AGENT_SILENT" {
		p.t.Errorf("%s: Reachable is %v", when, c)
	}
	if m.GetAttentionReason() != "NOT_OBSERVED" || m.GetSchedulable() ||
		m.GetNodeState() != baremetalv1.NodeState_NODE_STATE_ACTIVE {
		p.t.Errorf("%s: a machine is %v", when, m)
	}
	if c := rig.Condition(
		p.Machine("own-1"),
		"Reachable",
	); !c.GetKnown() || !c.GetStatus() ||
		c.GetObservedBy() == agentID {
		p.t.Errorf("%s: Reachable of a machine with an agent of its own is %v", when, c)
	}
	for filter, want := range map[string]int{
		"conditions.Reachable=unknown": agentless, "conditions.Reachable=false": 0, "conditions.Reachable=true": own,
		"conditions.Reachable!=true": agentless, "attention_reason=NOT_OBSERVED": agentless,
		"effective_state=ATTENTION,attention_reason!=NOT_OBSERVED": 0, "node_state=offline": 0,
	} {
		if got := p.count(filter); got != want {
			p.t.Errorf("%s: %s counts %d, want %d", when, filter, got, want)
		}
		list := harness.Must(p.t, p.Machines().ListMachines,
			&baremetalv1.ListMachinesRequest{Filter: filter, PageSize: 1000})
		if got := len(list.GetMachines()); got != want {
			p.t.Errorf("%s: %s lists %d, want %d", when, filter, got, want)
		}
	}
	p.oneEntry(when)
}

// oneEntry: the silence of a site is one entry everywhere, and the cause of each of its machines.
func (p *place) oneEntry(when string) {
	p.t.Helper()
	sentence := fmt.Sprintf("site %s is silent: %d machines are not observed", site, agentless)
	r := harness.Must(p.t, p.Machines().ExplainMachines, &baremetalv1.ExplainMachinesRequest{})
	if len(r.GetMachines()) != 0 || len(r.GetSharedCauses()) != 1 || r.GetSharedCauses()[0].GetText() != sentence ||
		r.GetSharedCauses()[0].GetMachines() != agentless || r.GetSharedCauses()[0].GetSince() == nil {
		p.t.Errorf("%s: explained as %d machines and %v", when, len(r.GetMachines()), r.GetSharedCauses())
	}
	why := harness.Must(p.t, p.Machines().ExplainMachine, &baremetalv1.ExplainMachineRequest{MachineId: name(7)})
	if why.GetReason() != "NOT_OBSERVED" || !strings.Contains(why.GetCause(), "the agent of site "+site) ||
		why.GetWaitsOn() != "agent" {
		p.t.Errorf("%s: a machine is explained as %v", when, why)
	}
	if code, out := p.Ingot("status"); code != 0 || !strings.Contains(out, sentence) || strings.Contains(out, name(7)) {
		p.t.Errorf("%s: status: exit code %d\n%s", when, code, out)
	}
	if code, out := p.Ingot("why", "--filter", "state=ATTENTION", "--check"); code != 4 ||
		!strings.Contains(out, sentence) || strings.Contains(out, name(7)) {
		p.t.Errorf("%s: why: exit code %d\n%s", when, code, out)
	}
	if code, out := p.Ingot("list", "--filter", "machine_id="+name(7)); code != 0 || !strings.Contains(out, "?") {
		p.t.Errorf("%s: list: exit code %d\n%s", when, code, out)
	}
}
