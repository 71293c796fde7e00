package provision

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/harness"
)

var (
	provisioned = flag.Int("provision.machines", 30, "how many machines TestProvisioning provisions")
	broken      = flag.Int("provision.broken", 3, "how many of them fail")
)

func TestMain(m *testing.M) { rig.Main(m) }

// span is one installation, by the operation's own record.
type span struct {
	machine  string
	from, to time.Time
}

// most is how many were under way at once.
func most(all []span) int {
	peak := 0
	for _, s := range all {
		n := 0
		for _, o := range all {
			if !o.from.After(s.from) && o.to.After(s.from) {
				n++
			}
		}
		peak = max(peak, n)
	}
	return peak
}

// crowdOf starts n simulated machines, of which so many do nothing right, spread over all.
func crowdOf(t *testing.T, c *harness.ControllerProcess, n, failing int) (names, bad []string) {
	t.Helper()
	dir := t.TempDir()
	specs, err := fleet.Register(t.Context(), c.Conn(), dir, "p", 0, n)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range specs {
		names = append(names, s.Name)
		if len(bad) < failing && i%(n/failing) == 1 {
			bad = append(bad, s.Name)
		}
	}
	script, err := fleet.ParseScript("repave:time=200ms")
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.Start(t.Context(), fleet.Config{Dir: dir, Script: script, Reports: true, Broken: bad})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	f.Add(specs...)
	if err := f.AwaitConnected(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return names, bad
}

// reimages are the installations that were begun, by their own record.
func reimages(t *testing.T, c *harness.Client) []span {
	t.Helper()
	var out []span
	for token := ""; ; {
		r := harness.Must(t, c.Operations().ListOperations,
			&baremetalv1.ListOperationsRequest{Filter: "type=REIMAGE", PageSize: 1000, PageToken: token})
		for _, op := range r.GetOperations() {
			if op.GetStartedAt() == nil {
				continue
			}
			out = append(out, span{op.GetMachineId(), op.GetStartedAt().AsTime(), op.GetFinishedAt().AsTime()})
		}
		if token = r.GetNextPageToken(); token == "" {
			return out
		}
	}
}

// TestProvisioning takes new machines into service by one command, of which some fail. The command and the controller
// are killed with SIGKILL in the middle. The same command comes back, shows the failures first, and ends. Every machine
// is installed once, and never more at a time than the budget allows.
func TestProvisioning(t *testing.T) {
	n, failing := *provisioned, *broken
	room := max(4, n/25)
	c := harness.NewControllerProcessWith(t, "")
	c.Start("")
	names, bad := crowdOf(t, c, n, failing)
	harness.Must(t, baremetalv1.NewBudgetServiceClient(c.Conn()).SetBudget, &baremetalv1.SetBudgetRequest{
		Budget: &baremetalv1.Budget{Name: "fleet", Domain: "fleet", AtOnce: int32(room)}})
	rollouts := baremetalv1.NewRolloutServiceClient(c.Conn())
	args := []string{"provision", "--select", "machine_id=p-*,state=NEW", "--image", "ubuntu-2204", "--max-failures",
		fmt.Sprint(failing + 1), "--request-id", "first-rack", "--yes",
		"--step-timeout", "10m"} // a thousand agents take their time to come back to a controller that was killed
	begin := time.Now()
	first := c.Command(t, args...)
	tally := func() *baremetalv1.RolloutTally {
		r := harness.Must(t, rollouts.ListRollouts, &baremetalv1.ListRolloutsRequest{Filter: "request_id=first-rack"})
		if len(r.GetRollouts()) == 0 {
			return nil
		}
		return r.GetRollouts()[0].GetTally()
	}
	patience := time.Minute + time.Duration(n)*time.Second
	reaches := func(done int) {
		t.Helper()
		testkit.Eventually(t, patience, func() bool {
			return int(tally().GetSucceeded()) >= done
		}, "it does not go on: %s", lazyText(first.Output))
	}
	reaches(n / 5)
	first.Kill()
	reaches(2 * n / 5)
	c.Process.Kill()
	c.Start("")
	second := c.Command(t, args...)
	select {
	case <-second.Gone():
	case <-time.After(patience):
		t.Fatalf("the command does not end: %s", second.Output())
	}
	t.Logf("%d machines, %d of them broken, in %s", n, failing, time.Since(begin).Round(time.Second))
	if code := second.ExitCode(); code != 5 {
		t.Errorf("exit code %d, want 5 for failed machines", code)
	}
	shows(t, second.Output(), n, bad)
	list := harness.Must(t, rollouts.ListRollouts, &baremetalv1.ListRolloutsRequest{})
	if len(list.GetRollouts()) != 1 {
		t.Errorf("%d rollouts by one command", len(list.GetRollouts()))
	}
	for _, name := range names {
		want := baremetalv1.MachineStatus_IDLE
		m := c.Machine(name)
		if slices.Contains(bad, name) {
			want = m.GetStatus().GetEffectiveState()
			if m.GetStatus().GetPhase() != baremetalv1.MachineStatus_MAINTENANCE {
				t.Errorf("%s, which failed, is in phase %s", name, m.GetStatus().GetPhase())
			}
		}
		if got := m.GetStatus().GetEffectiveState(); got != want {
			t.Errorf("%s is %s: %s", name, got, m.GetStatus().GetAttentionMessage())
		}
	}
	all := reimages(t, c.Client)
	perMachine := map[string]int{}
	for _, s := range all {
		perMachine[s.machine]++
		if perMachine[s.machine] > 1 {
			t.Errorf("%s was installed twice", s.machine)
		}
	}
	peak := most(all)
	t.Logf("installations that held a slot of the budget at once: %d of %d", peak, room)
	if len(all) != n || peak > room {
		t.Errorf("%d installations of %d machines, %d at once, the budget is %d", len(all), n, peak, room)
	}
}

// shows holds what a person reads: each machine that failed with its reason and the next command, and at the end the
// failures before the sum.
func shows(t *testing.T, out string, n int, bad []string) {
	t.Helper()
	for _, name := range bad[:min(20, len(bad))] {
		if !strings.Contains(out, "✗ "+name+"  EXECUTION_FAILED: a scripted failure of the simulated machine") ||
			!strings.Contains(out, "→ ingot why "+name+"\n") {
			t.Errorf("the output does not say why %s failed, and what to do:\n%s", name, out)
		}
	}
	sum := fmt.Sprintf("COMPLETED_WITH_FAILURES: %d of %d machines done, %d failed", n-len(bad), n, len(bad))
	failures := fmt.Sprintf("✗ %d EXECUTION_FAILED: %s", len(bad), bad[0])
	if at := strings.Index(out, failures); at < 0 || strings.Index(out, sum) < at {
		t.Errorf("want %q, then %q:\n%s", failures, sum, out)
	}
}

type lazyText func() string

func (l lazyText) String() string { return l() }
