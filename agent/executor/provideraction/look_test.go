package provideraction_test

import (
	"fmt"
	"testing"

	"github.com/ingot-metal/ingot/agent/provider/maas"
	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// TestMachinesWithManyInterfacesAreFound: no request names more MAC addresses than a web server takes in a URL, and a
// machine that several requests find is one machine.
func TestMachinesWithManyInterfacesAreFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var macs []string
	for i := range 40 {
		var own []string
		for n := range 9 {
			own = append(own, fmt.Sprintf("52:54:00:00:%02x:%02x", i, n))
		}
		r.region.Add(maastest.Machine{Status: ms.Ready, MACs: own})
		macs = append(macs, own...)
	}
	client, err := maas.NewClient(maas.Region{Ref: "default", Endpoint: r.region.Endpoint(), APIKey: r.key}, patience)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Find(t.Context(), macs)
	if err != nil || len(list) != 40 {
		t.Errorf("%d machines are found: %v", len(list), err)
	}
}

// TestAMachineThatIsSwitchedByHand: no power state is waited for once MAAS has released it, and nothing claims that it
// is off.
func TestAMachineThatIsSwitchedByHand(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(maastest.Machine{Status: ms.Deployed, PowerType: "manual"})
	r.must("release", nil)
	got := r.must("power_off", nil)
	if got["maas_power"] == "off" || got["power_off_seen_at"] != "" {
		t.Errorf("the evidence says %v", got)
	}
	r.must("delete", nil)
}
