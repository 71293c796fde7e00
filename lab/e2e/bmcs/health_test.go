package bmcs

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/harness"
)

// health waits until a machine's reading is as wanted.
func (w *world) health(id, what string, ok func(*baremetalv1.HardwareHealth) bool) *baremetalv1.HardwareHealth {
	w.t.Helper()
	var last *baremetalv1.HardwareHealth
	testkit.Eventually(w.t, 90*time.Second, func() bool {
		last = harness.Must(w.t, w.Machines().GetHardwareHealth, &baremetalv1.GetHardwareHealthRequest{MachineId: id})
		return ok(last)
	}, "%s", what)
	return last
}

func named(h *baremetalv1.HardwareHealth, component string) bool {
	for _, f := range h.GetFaults() {
		if f.GetComponent() == component && f.GetSeverity() == "critical" {
			return true
		}
	}
	return false
}

// TestAFaultIsShownUntilItIsOver: a cord is pulled and a memory module fails; the list, the sheet and `why` name the
// parts, and forget them when the BMC does.
func TestAFaultIsShownUntilItIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, b, _ := w.redfish(1, bmc.Shape{})
	w.health(id, "all is well", func(h *baremetalv1.HardwareHealth) bool {
		return h.GetReadAt() != nil && len(h.GetSensors()) == 2 && len(h.GetFaults()) == 0
	})
	b.Misbehave(bmc.Faults{NoInput: true, BadModule: true})
	w.health(id, "both faults", func(h *baremetalv1.HardwareHealth) bool {
		return named(h, "power supply PSU2") && named(h, "memory A2") && len(h.GetFaults()) == 2
	})
	if out := w.ingot(0, "machine", "health", id); !strings.Contains(out, "UnavailableOffline") ||
		!strings.Contains(out, "2 parts are not well") {
		t.Error(out)
	}
	if out := w.ingot(0, "why", id); !strings.Contains(out, "HARDWARE_FAULT") || !strings.Contains(out, "PSU2") {
		t.Error(out)
	}
	if out := w.ingot(0, "list", "--filter", "conditions.HardwareFault=true"); !strings.Contains(out, id) ||
		!strings.Contains(out, "⚠DEGRADED") {
		t.Error(out)
	}
	b.Misbehave(bmc.Faults{})
	w.health(id, "it is over", func(h *baremetalv1.HardwareHealth) bool { return len(h.GetFaults()) == 0 })
	if out := w.ingot(0, "why", id); strings.Contains(out, "HARDWARE_FAULT") {
		t.Error(out)
	}
}

// TestAMemberThatIsGone: a service with pages of one member, and with listed members that answer 404, is read and
// ordered all the same. A part that was not read is unknown.
func TestAMemberThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, b, _ := w.redfish(1, bmc.Paged)
	b.Misbehave(bmc.Faults{BadModule: true})
	h := w.health(id, "the fault", func(h *baremetalv1.HardwareHealth) bool { return named(h, "memory A2") })
	if len(h.GetFaults()) != 1 ||
		!strings.Contains(strings.Join(h.GetNotRead(), "; "), "Memory/Gone: the BMC refuses: 404") {
		t.Errorf("%v", h)
	}
	if out := w.ingot(
		0,
		"machine",
		"health",
		id,
	); !strings.Contains(out, "unknown") ||
		!strings.Contains(out, "Not read") {
		t.Error(out)
	}
	b.Misbehave(bmc.Faults{})
	w.health(id, "it is over", func(h *baremetalv1.HardwareHealth) bool { return len(h.GetFaults()) == 0 })
}

// TestIPMISaysThatASupplyHasFailed: OpenIPMI's simulator, a sensor without a reading.
func TestIPMISaysThatASupplyHasFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := chassis(1)
	b, err := bmc.StartIPMI(t.Context(), bmc.IPMIConfig{Chassis: c, Dir: testkit.TempDir(t),
		Addr: netip.MustParseAddrPort("127.0.0.1:0"), User: user, Password: password, FailedSupply: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	id := w.machine(1, c, b.Endpoint())
	h := w.health(id, "the supply", func(h *baremetalv1.HardwareHealth) bool { return named(h, "power supply PSU2") })
	if len(h.GetFaults()) != 1 || !strings.Contains(h.GetFaults()[0].GetSaid(), "Failure detected") ||
		len(h.GetSensors()) != 2 || len(h.GetEvents()) != 1 {
		t.Errorf("%v", h)
	}
	// The simulator takes the order, and its chassis status has no word of the light.
	w.ingot(0, "machine", "identify", id)
	w.health(id, "the light", func(h *baremetalv1.HardwareHealth) bool {
		return h.GetIdentifyLight() == "" && h.GetIdentifyLightOrdered() == "on"
	})
}

// lights turns a machine's light on and off.
func (w *world) lights(id string) {
	w.t.Helper()
	for _, l := range []struct {
		args []string
		want string
	}{{[]string{"machine", "identify", id}, "on"}, {[]string{"machine", "identify", id, "--off"}, "off"}} {
		if out := w.ingot(0, l.args...); !strings.Contains(out, "ordered "+l.want) {
			w.t.Error(out)
		}
		w.health(id, "the light is "+l.want, func(h *baremetalv1.HardwareHealth) bool {
			return h.GetIdentifyLight() == l.want && h.GetIdentifyLightOrdered() == l.want
		})
	}
}

// TestTheIdentifyLight turns the light on and off, and restarts the site's agent. Viewers and machines without a BMC
// are refused.
func TestTheIdentifyLight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, _, _ := w.redfish(1, bmc.Shape{})
	w.lights(id)
	w.ingot(0, "machine", "identify", id)
	w.site.Restart(func() {})
	w.health(id, "lit after the agent's restart", func(h *baremetalv1.HardwareHealth) bool {
		return h.GetIdentifyLight() == "on"
	})
	w.Register(&baremetalv1.Machine{MachineId: "m-bare", Spec: &baremetalv1.MachineSpec{Site: site}})
	for args, want := range map[string]string{"m-bare": "NO_BMC", "m-nobody": "MACHINE_NOT_FOUND"} {
		if code, out := w.Ingot("machine", "identify", args); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d %s", args, code, out)
		}
	}
	secret, err := auth.AddToken(w.TokensFile(), "viewer", access.ScopeRead)
	if err == nil {
		err = w.Controller().Reload()
	}
	if err != nil {
		t.Fatal(err)
	}
	if code, out := w.WithToken(secret).Ingot("machine", "identify", id, "--off"); code == 0 ||
		!strings.Contains(out, "SCOPE_TOO_SMALL") {
		t.Errorf("a viewer: exit code %d, %s", code, out)
	}
}
