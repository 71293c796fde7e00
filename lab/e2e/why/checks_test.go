package why

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/inventory"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// ownHardware is a simulated host that shows its network cards as hardware of its own.
type ownHardware struct{ host.Host }

func (o ownHardware) Identity(ctx context.Context) (host.Identity, error) {
	id, err := o.Host.Identity(ctx)
	id.Simulated = false
	return id, err
}

func (o ownHardware) Inventory(ctx context.Context) (inventory.Document, error) {
	doc, err := o.Host.Inventory(ctx)
	doc.Simulated = false
	return doc, err
}

// typedWrong counts the addresses that were typed wrong: no two machines have the same.
var typedWrong atomic.Int32

// mistyped returns a machine with its agent, registered under a MAC address that it does not have.
func mistyped(t *testing.T, r *harness.Cluster, mac string) *harness.Machine {
	t.Helper()
	m := r.NewMachine(t, harness.MachineOptions{Stopped: true, Change: func(cfg *agent.Config) {
		simulated := cfg.Host
		cfg.Host = func(ctx context.Context, down func()) (host.Host, func() error, error) {
			h, end, err := simulated(ctx, down)
			return ownHardware{h}, end, err
		}
	}})
	correct(t, r, m.ID, mac)
	m.Start()
	m.WaitConnected()
	return m
}

// TestRegisteredWithATypingError: an agent that enrols and reports cannot pass the health checks of its node, because a
// MAC address was typed wrong. Every place names the address, and the correction alone makes the node active.
func TestRegisteredWithATypingError(t *testing.T) {
	t.Parallel()
	r := harness.New(t, harness.Options{})
	const typed = "52:54:00:99:00:01"
	m := mistyped(t, r, typed)
	var check *baremetalv1.NodeCheck
	testkit.Eventually(t, rig.Soon, func() bool {
		check = checkOf(harness.Must(t, r.Nodes().GetNode, &baremetalv1.GetNodeRequest{NodeId: m.ID}), "inventory")
		return check.GetState() == "failing"
	}, "the inventory check does not fail")
	_, found, ok := strings.Cut(check.GetMessage(), "registered MAC address "+typed+" is not among the machine's: ")
	if !ok {
		t.Fatalf("the check says %q", check.GetMessage())
	}
	why := harness.Must(t, r.Machines().ExplainMachine, &baremetalv1.ExplainMachineRequest{MachineId: m.ID})
	if why.GetRule() != "health-checks" || !strings.Contains(why.GetCause(), check.GetMessage()) ||
		!slices.ContainsFunc(why.GetActions(), func(a *baremetalv1.OperatorAction) bool {
			return strings.HasPrefix(a.GetCommand(), "ingot machine update "+m.ID+" --mac-addresses")
		}) {
		t.Errorf("rule %s: %s; actions %v", why.GetRule(), why.GetCause(), why.GetActions())
	}
	correct(t, r, m.ID, strings.Split(found, ", ")[0])
	testkit.Eventually(t, rig.Soon, func() bool {
		return r.Machine(m.ID).GetStatus().GetNodeState() == baremetalv1.NodeState_NODE_STATE_ACTIVE
	}, "the node does not become active")
}

// correct registers the machine's MAC address.
func correct(t *testing.T, r *harness.Cluster, id, mac string) {
	t.Helper()
	harness.Must(t, r.Machines().UpdateMachine, &baremetalv1.UpdateMachineRequest{
		Machine:    &baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{MacAddresses: []string{mac}}},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"spec.mac_addresses"}},
	})
}

func checkOf(n *baremetalv1.Node, name string) *baremetalv1.NodeCheck {
	i := slices.IndexFunc(n.GetChecks(), func(c *baremetalv1.NodeCheck) bool { return c.GetName() == name })
	if i < 0 {
		return nil
	}
	return n.GetChecks()[i]
}
