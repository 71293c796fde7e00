package fleetview

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestMain(m *testing.M) { rig.Main(m) }

// follower applies what a watch sends, and begins again from its cursor when it breaks.
type follower struct {
	t      *testing.T
	c      *harness.Cluster
	filter string
	cursor string
	has    map[string]string // machine: effective state
	breaks int
}

// until follows until what the follower has is as wanted.
func (f *follower) until(what string, done func() bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), rig.Soon)
	defer cancel()
	for {
		err := f.once(ctx, done)
		switch {
		case err == nil:
			return
		case ctx.Err() != nil:
			f.t.Fatalf("%s: the watch has %v, %v", what, f.has, err)
		case status.Code(err) != codes.Unavailable:
			f.t.Fatalf("%s: %v", what, err)
		}
		f.breaks++
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (f *follower) once(ctx context.Context, done func() bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := f.c.Machines().WatchMachines(ctx, &baremetalv1.WatchMachinesRequest{Filter: f.filter, Cursor: f.cursor})
	for err == nil && !done() {
		var ev *baremetalv1.MachineEvent
		if ev, err = s.Recv(); err != nil {
			break
		}
		f.cursor = ev.GetCursor()
		switch id := ev.GetMachine().GetMachineId(); ev.GetKind() {
		case baremetalv1.MachineEvent_CURRENT, baremetalv1.MachineEvent_CHANGED:
			f.has[id] = ev.GetMachine().GetStatus().GetEffectiveState().String()
		case baremetalv1.MachineEvent_LEFT, baremetalv1.MachineEvent_DELETED:
			delete(f.has, id)
		}
	}
	return err
}

func (f *follower) wants(states ...string) {
	f.t.Helper()
	f.until("the watch", func() bool {
		return fmt.Sprint(f.has) == "map["+strings.Join(states, " ")+"]"
	})
}

// TestTheFleetAtAGlance takes machines through maintenance, loses an agent and a controller, and looks by each call.
func TestTheFleetAtAGlance(t *testing.T) {
	c := harness.New(t, harness.Options{Configure: func(cfg *config.Config) {
		cfg.Listen.REST = "127.0.0.1:0"
	}})
	one := c.NewMachine(t, harness.MachineOptions{ID: "m-2"})
	two := c.NewMachine(t, harness.MachineOptions{ID: "m-10"})
	one.WaitConnected()
	two.WaitConnected()
	c.Register(&baremetalv1.Machine{MachineId: "m-1", Spec: &baremetalv1.MachineSpec{Rack: "r7"}})
	watching := &follower{t: t, c: c, filter: "state in (MAINTENANCE, ATTENTION)", has: map[string]string{}}
	rig.Maintenance(t, c.Client, "m-2")
	rig.Maintenance(t, c.Client, "m-10")
	watching.wants("m-10:MAINTENANCE_IDLE", "m-2:MAINTENANCE_IDLE")

	// The controller dies under the watch, and no event before its return is missed.
	c.Kill()
	c.Restart()
	must(t, c, "exit-maintenance", "m-2")
	must(t, c, "exit-maintenance", "m-10")
	watching.until("nobody needs anybody", func() bool {
		return len(watching.has) == 0 || watching.has["m-2"] == "ATTENTION" && watching.has["m-10"] == "ATTENTION"
	})

	shows(t, must(t, c, "count", "--by", "state,rack"), "STATE", "RACK", "MACHINES", "NEW", "r7", "3 machines in all")
	shows(t, must(t, c, "list", "--order-by", "machine_id desc", "-o", "name"), "m-10\nm-2\nm-1\n")
	shows(t, must(t, c, "why", "--filter", "machine_id in (m-1, m-2)"), "m-1", "NEW", "ingot enter-maintenance m-1", "m-2")
	overREST(t, c)

	c.Restored(t)
	err := watching.once(t.Context(), func() bool { return false })
	if failure.ReasonOf(err) != "CURSOR_EXPIRED" {
		t.Errorf("a cursor from before a restore: %v", err)
	}
}

// TestASummaryCountsWhatThereIs: a reboot is under way, then it has failed, then its machine's agent is away.
func TestASummaryCountsWhatThereIs(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{Script: "reboot:never@1"})
	other := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	other.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	says := func(what string, want *baremetalv1.FleetSummary) {
		t.Helper()
		var got *baremetalv1.FleetSummary
		testkit.Eventually(t, rig.Soon, func() bool {
			got = harness.Must(t, c.Machines().GetFleetSummary, &baremetalv1.GetFleetSummaryRequest{})
			counts := harness.Must(t, c.Machines().CountMachines,
				&baremetalv1.CountMachinesRequest{GroupBy: []string{"effective_state"}})
			want.AsOf, want.Machines, want.TotalMachines = got.GetAsOf(), counts.GetGroups(), counts.GetTotal()
			return proto.Equal(got, want)
		}, "%s", what)
	}
	says("two agents", &baremetalv1.FleetSummary{ConnectedAgents: 2})
	op := rig.Reboot(t, c.Client, m.ID, "r", 12)
	says("a reboot under way", &baremetalv1.FleetSummary{ConnectedAgents: 2, RunningOperations: 1})
	c.Wait(op.GetOperationId(), rig.Soon)
	says("a failed reboot", &baremetalv1.FleetSummary{ConnectedAgents: 2, FailedOperations: 1})
	m.Isolate()
	says("an agent that is away", &baremetalv1.FleetSummary{ConnectedAgents: 1, FailedOperations: 1})
}

// overREST asks the same with HTTP and JSON alone.
func overREST(t *testing.T, c *harness.Cluster) {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.Controller().RootPEM()) {
		t.Fatal("no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}}
	defer transport.CloseIdleConnections()
	get := func(path string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"https://"+c.Controller().Addresses().REST+"/api/v1"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+c.Client.Token())
		resp, err := (&http.Client{Transport: transport, Timeout: rig.Soon}).Do(r)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %v", path, resp, err)
		}
		return resp
	}
	var counts struct {
		Groups []struct {
			Values []string
			Count  int
		}
		Total int
	}
	//nolint:bodyclose // decode closes it
	decode(t, get("/machine-counts?group_by=effective_state&group_by=rack&filter=rack%3D*"), &counts)
	if counts.Total != 1 || len(counts.Groups) != 1 || fmt.Sprint(counts.Groups[0].Values) != "[NEW r7]" {
		t.Errorf("counts over REST: %+v", counts)
	}
	var why struct {
		Machines []struct {
			Machine struct {
				MachineID string `json:"machine_id"`
			}
			Explanation struct{ Summary, WaitsOn string }
		}
	}
	//nolint:bodyclose // decode closes it
	decode(t, get("/machine-explanations?filter=machine_id%3Dm-1"), &why)
	if len(why.Machines) != 1 || why.Machines[0].Machine.MachineID != "m-1" || why.Machines[0].Explanation.Summary == "" {
		t.Errorf("explanations over REST: %+v", why)
	}
	events := get("/machine-events?filter=machine_id%3Dm-1")
	defer events.Body.Close()
	var kinds []string
	for s := bufio.NewScanner(events.Body); len(kinds) < 2 && s.Scan(); {
		var line struct{ Result struct{ Kind string } }
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, line.Result.Kind)
	}
	if fmt.Sprint(kinds) != "[CURRENT BOOKMARK]" {
		t.Errorf("a watch over REST: %v", kinds)
	}
}

func decode(t *testing.T, resp *http.Response, into any) {
	t.Helper()
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, c *harness.Cluster, args ...string) string {
	t.Helper()
	var out string
	testkit.Eventually(t, rig.Soon, func() bool {
		code, said := c.Ingot(args...)
		out = said
		return code == 0
	}, "ingot %v: %s", args, out)
	return out
}

func shows(t *testing.T, out string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(out, w) {
			t.Errorf("it does not say %q:\n%s", w, out)
		}
	}
}
