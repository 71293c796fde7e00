package agent_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/agenttest"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/internal/clock"
)

// networkSpec orders an address for the only card.
func networkSpec(
	t *testing.T, generation int64, address string, change func(*baremetalv1.NetReconfig),
) *fleetv1.CommandSpec {
	t.Helper()
	order := &baremetalv1.NetReconfig{Interfaces: []*baremetalv1.NetworkInterface{
		{Name: "eth0", Addresses: []string{address}}}}
	change(order)
	config, err := proto.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	return &fleetv1.CommandSpec{TimeoutMs: 20000, Action: &fleetv1.CommandSpec_Reconfig{
		Reconfig: &fleetv1.ReconfigAction{Config: config, ConfirmTimeoutMs: 2000, Generation: generation},
	}}
}

func asItIs(*baremetalv1.NetReconfig) {}

func TestInterfacesProveThemselvesOrAreRolledBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.start()
	wantOutcome(t, r.c.WaitResult(r.c.Order(networkSpec(t, 1, "192.0.2.7/24", asItIs))), fleetv1.CommandResult_SUCCEEDED,
		"")
	r.blockNew.Store(true)
	failed := r.c.Order(networkSpec(t, 2, "192.0.2.8/24", asItIs))
	wantOutcome(t, r.c.WaitResult(failed), fleetv1.CommandResult_FAILED, "CONFIG_ROLLED_BACK")
	r.blockNew.Store(false)
	st, err := r.world.State(r.c.MachineID)
	if err != nil {
		t.Fatal(err)
	}
	if got := st.Network.Interfaces[0].Addresses[0].String(); got != "192.0.2.7/24" ||
		r.effects(failed, sim.KindNetwork) != 1 {
		t.Errorf("address %s after %d changes and a rollback", got, r.effects(failed, sim.KindNetwork))
	}
}

func TestDriftIsRefusedUntilItIsAccepted(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.start()
	wantOutcome(t, r.c.WaitResult(r.c.Order(networkSpec(t, 1, "192.0.2.7/24", asItIs))), fleetv1.CommandResult_SUCCEEDED,
		"")
	st, err := r.world.State(r.c.MachineID)
	if err != nil {
		t.Fatal(err)
	}
	foreign := *st.Network
	foreign.Interfaces[0].MTU = 9000
	if err := r.world.Machine(r.c.MachineID).ApplyNetwork(t.Context(), effect.Cause{CommandID: "somebody"},
		foreign); err != nil {
		t.Fatal(err)
	}
	refused := r.c.WaitResult(r.c.Order(networkSpec(t, 2, "192.0.2.8/24", asItIs)))
	wantOutcome(t, refused, fleetv1.CommandResult_REFUSED, "CONFIG_DRIFT")
	for _, where := range []string{refused.GetEvidence()["drift"], refused.GetMessage()} {
		if !strings.Contains(where, "+++ simulated/interfaces\n") || !strings.Contains(where, "+  \"mtu\": 9000") {
			t.Errorf("no unified diff in %q", where)
		}
	}
	again := r.c.WaitResult(r.c.Order(networkSpec(t, 1, "192.0.2.7/24", asItIs)))
	wantOutcome(t, again, fleetv1.CommandResult_FAILED, "CONFIG_DRIFT")

	accepted := networkSpec(t, 3, "192.0.2.8/24", func(o *baremetalv1.NetReconfig) { o.AcceptDrift = true })
	wantOutcome(t, r.c.WaitResult(r.c.Order(accepted)), fleetv1.CommandResult_SUCCEEDED, "")
}

// hastyClock runs faster than time does: a wait of a minute takes a fraction of a second.
type hastyClock struct {
	clock.Clock
	faster time.Duration
}

func (h hastyClock) After(d time.Duration) <-chan time.Time { return h.Clock.After(d / h.faster) }

func (h hastyClock) NewTicker(d time.Duration) clock.Ticker {
	return h.Clock.NewTicker(max(d/h.faster, time.Millisecond))
}

// An outage adds nothing to what the next heartbeat reports. An agent that is cut off for minutes keeps no heartbeats,
// and none takes the place of an event that carries news.
func TestAnAgentThatIsCutOffKeepsNoHeartbeats(t *testing.T) {
	t.Parallel()
	r := newRig(t, agenttest.Hooks{}, "")
	r.cfg.Clock = hastyClock{clock.Real(), 100}
	r.start()
	s := r.c.WaitSessions(1)
	r.blockNew.Store(true)
	s.Break()
	<-s.Ended()
	<-r.cfg.Clock.After(3 * time.Minute) // by the agent's clock
	r.blockNew.Store(false)
	r.c.WaitSessions(2)
	before := r.c.Heartbeats()
	r.c.Wait("heartbeats of now", func() bool { return r.c.Heartbeats() > before+1 })
	for _, e := range r.c.Events() {
		if e.GetHeartbeat() != nil {
			t.Errorf("the agent sends a heartbeat of %s later", e.GetTs().AsTime())
		}
	}
}
