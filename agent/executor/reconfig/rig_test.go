package reconfig

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/rollback"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/internal/clock"
)

// guarded is a simulated host with a watchdog in memory, which records its calls, and may be too quick.
type guarded struct {
	*sim.Host
	mu      sync.Mutex // of record, where a test watches
	record  *rollback.Guard
	log     []string
	tooLate bool
	source  netip.Addr
	sources map[netip.Addr]netip.Addr // by where they go, before that
	support error
	// slow: its changes may come later than they are accepted.
	slow bool
	// forgot: the kernel holds nothing of the network configuration any more.
	forgot bool
	// fails are the calls that fail from now on, by name.
	fails map[string]error
}

func (g *guarded) ChangesAtOnce() bool { return !g.slow }

func (g *guarded) NetworkForgotten(context.Context) (bool, error) {
	return g.forgot, g.fails["NetworkForgotten"]
}

func (g *guarded) Hostname(ctx context.Context) (string, error) {
	name, err := g.Host.Hostname(ctx)
	return name, errors.Join(err, g.fails["Hostname"])
}

func (g *guarded) Firewall(ctx context.Context) (firewall.State, error) {
	s, err := g.Host.Firewall(ctx)
	return s, errors.Join(err, g.fails["Firewall"])
}

func (g *guarded) FirewallDiff(context.Context, firewall.Policy) (string, error) {
	return "rule by rule\n", g.fails["FirewallDiff"]
}

func (g *guarded) Network(
	ctx context.Context, c network.Config, before *network.SavedNetwork,
) (network.State, error) {
	s, err := g.Host.Network(ctx, c, before)
	return s, errors.Join(err, g.fails["Network"])
}

func (g *guarded) SaveNetwork(ctx context.Context, c network.Config) (network.SavedNetwork, error) {
	s, err := g.Host.SaveNetwork(ctx, c)
	return s, errors.Join(err, g.fails["SaveNetwork"])
}

func (g *guarded) NetworkSupport(context.Context, network.Config) error { return g.support }

func (g *guarded) NetworkSource(_ context.Context, _ network.Config, to netip.Addr) (netip.Addr, error) {
	if from, ok := g.sources[to]; ok {
		return from, nil
	}
	return g.source, g.fails["NetworkSource"]
}

func (g *guarded) SetHostname(ctx context.Context, e effect.Cause, name string) error {
	if err := g.fails["SetHostname"]; err != nil {
		return err
	}
	return g.Host.SetHostname(ctx, e, name)
}

func (g *guarded) ApplyFirewall(ctx context.Context, e effect.Cause, p firewall.Policy) error {
	if err := g.fails["ApplyFirewall"]; err != nil {
		return err
	}
	return g.Host.ApplyFirewall(ctx, e, p)
}

func (g *guarded) ApplyNetwork(ctx context.Context, e effect.Cause, c network.Config) error {
	g.log = append(g.log, "apply")
	if err := g.fails["ApplyNetwork"]; err != nil {
		return err
	}
	return g.Host.ApplyNetwork(ctx, e, c)
}

func (g *guarded) Guard(_ context.Context, r rollback.Guard) error {
	g.log = append(g.log, "guard")
	if err := g.fails["Guard"]; err != nil {
		return err
	}
	r.State = rollback.GuardPending
	g.record = &r
	return nil
}

func (g *guarded) CommitGuard(ctx context.Context, id string) error {
	g.log = append(g.log, "commit")
	if g.tooLate {
		return errors.Join(rollback.ErrGuardLost, g.RollBackGuard(ctx, id))
	}
	g.record.State = rollback.GuardCommitted
	return nil
}

func (g *guarded) RollBackGuard(ctx context.Context, id string) error {
	if err := g.fails["RollBackGuard"]; err != nil {
		return err
	}
	if g.record.State == rollback.GuardRolledBack {
		return nil
	}
	if g.record.CommandID != id || g.record.State != rollback.GuardPending {
		return errors.New("nothing to roll back")
	}
	g.log = append(g.log, "rollback")
	g.record.State = rollback.GuardRolledBack
	return g.RestoreNetwork(ctx, effect.Cause{CommandID: id + "-rollback"}, *g.record.Network)
}

// set changes the state of the record while a test watches.
func (g *guarded) set(state rollback.GuardState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.record.State = state
}

func (g *guarded) Guarded(context.Context) (*rollback.Guard, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.record == nil {
		return nil, g.fails["Guarded"]
	}
	r := *g.record
	return &r, g.fails["Guarded"]
}

// memory is the agent's, for one test.
type memory struct {
	docs map[string][]byte
	log  *[]string
	// fails are the calls that fail, as those of the host.
	fails map[string]error
}

func (m memory) PutJSON(_ context.Context, key string, v any) error {
	*m.log = append(*m.log, "remember")
	if err := m.fails["PutJSON"]; err != nil {
		return err
	}
	b, err := json.Marshal(v)
	m.docs[key] = b
	return err
}

func (m memory) GetJSON(_ context.Context, key string, into any) (bool, error) {
	b, ok := m.docs[key]
	if !ok {
		return false, nil
	}
	return true, json.Unmarshal(b, into)
}

type rig struct {
	t     *testing.T
	host  *guarded
	e     *Executor
	prove func(context.Context) error
	moves int
	// moved is called when new contact works; it may be nil.
	moved func()
	docs  map[string][]byte
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newScriptedRig(t, "")
}

// newScriptedRig returns a rig whose host fails by the script.
func newScriptedRig(t *testing.T, script string) *rig {
	t.Helper()
	h, err := sim.New(sim.Config{Dir: t.TempDir(), MachineID: "m-1", NoSync: true, Script: script})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() }) // nothing is owed to it
	r := &rig{t: t, host: &guarded{Host: h, fails: map[string]error{}}, docs: map[string][]byte{},
		prove: func(context.Context) error { return nil }}
	r.e = New(Config{
		Host: r.host, Docs: memory{docs: r.docs, log: &r.host.log, fails: r.host.fails}, Clock: clock.Real(), TargetID: "m-1",
		Prove: func(ctx context.Context) error { return r.prove(ctx) },
		Controllers: func(context.Context) []netip.AddrPort {
			return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}
		},
		Moved: func() {
			if r.moves++; r.moved != nil {
				r.moved()
			}
		},
	})
	return r
}

// order returns a command that sets the address of eth0.
func order(t *testing.T, generation int64, address string) *fleetv1.CommandSpec {
	t.Helper()
	return orderOf(t, generation,
		&baremetalv1.NetReconfig{Interfaces: []*baremetalv1.NetworkInterface{{Name: "eth0", Addresses: []string{address}}}})
}

func orderOf(t *testing.T, generation int64, c *baremetalv1.NetReconfig) *fleetv1.CommandSpec {
	t.Helper()
	config, err := proto.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return &fleetv1.CommandSpec{CommandId: "c-" + digestOf(config), TargetId: "m-1", Action: &fleetv1.CommandSpec_Reconfig{
		Reconfig: &fleetv1.ReconfigAction{Config: config, ConfirmTimeoutMs: 1000, Generation: generation},
	}}
}

// prepare returns the job for Execute or Resume.
func (r *rig) prepare(spec *fleetv1.CommandSpec) executor.Job {
	r.t.Helper()
	in, settled, err := r.e.Prepare(r.t.Context(), spec)
	if err != nil || settled != nil {
		r.t.Fatalf("prepare: %v, %v", settled, err)
	}
	b, err := json.Marshal(in)
	if err != nil {
		r.t.Fatal(err)
	}
	return executor.Job{Spec: spec, Intent: b, Hard: r.t.Context(), StartedAt: time.Now(), Logf: r.t.Logf,
		Progress: func(int, string) {}}
}

func (r *rig) execute(spec *fleetv1.CommandSpec) executor.Result {
	r.t.Helper()
	got, err := r.e.Execute(r.t.Context(), r.prepare(spec))
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func (r *rig) resume(job executor.Job) executor.Result {
	r.t.Helper()
	v, err := r.e.Resume(r.t.Context(), job)
	if err != nil || v.Settled == nil {
		r.t.Fatalf("resume: %+v, %v", v, err)
	}
	return *v.Settled
}

// address is that of eth0 now, "" for none.
func (r *rig) address() string {
	r.t.Helper()
	s, err := r.host.SaveNetwork(r.t.Context(), network.Config{})
	if err != nil {
		r.t.Fatal(err)
	}
	if s.Applied == nil {
		return ""
	}
	return s.Applied.Interfaces[0].Addresses[0].String()
}

func (r *rig) wantLog(want ...string) {
	r.t.Helper()
	if !slices.Equal(r.host.log, want) {
		r.t.Errorf("done: %v, want %v", r.host.log, want)
	}
}

func (r *rig) wantResult(got executor.Result, outcome fleetv1.CommandResult_Outcome, reason baremetalv1.Reason) {
	r.t.Helper()
	if got.Outcome != outcome || got.Reason != reason {
		r.t.Errorf("result %s %s (%s), want %s %s", got.Outcome, got.Reason, got.Message, outcome, reason)
	}
}
