package maas

import (
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/hwid"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// TestOtherHardwareIsSeen: a machine in MAAS that has the cards and another serial number is seen to be another one by
// each look, and not only by the next command.
func TestOtherHardwareIsSeen(t *testing.T) {
	t.Parallel()
	const mac = "52:54:00:00:00:01"
	look := func(registered string, hardware map[string]string) Observation {
		m := &Machine{SystemID: "abc", Status: ms.Deployed, Owner: "ingot", NICs: []NIC{{MAC: mac}},
			Annotations: map[string]string{noteMachine: "m-1"}, Hardware: hardwareOf(hardware)}
		return observed(
			Target{MachineID: "m-1", MACs: []string{mac}, Serial: registered},
			[]*Machine{m},
			"ingot",
			nil,
			time.Time{},
		)
	}
	for name, c := range map[string]struct {
		registered string
		hardware   map[string]string
		other      bool
	}{
		"the same":               {"SN-1", map[string]string{"system_serial": "sn-1 "}, false},
		"another":                {"SN-1", map[string]string{"system_serial": "SN-2"}, true},
		"the label of the board": {"B-1", map[string]string{"system_serial": "SN-2", "mainboard_serial": "B-1"}, false},
		"none registered":        {"", map[string]string{"system_serial": "SN-2"}, false},
		"a factory's registered": {"To be filled by O.E.M.", map[string]string{"system_serial": "SN-2"}, false},
		"not read by MAAS":       {"SN-1", map[string]string{"system_serial": "Unknown"}, false},
		"no hardware":            {"SN-1", nil, false},
	} {
		o := look(c.registered, c.hardware)
		if other := o.HeldBy != ""; other != c.other || other && !strings.Contains(o.HeldBy, "SN-2") {
			t.Errorf("%s: %q", name, o.HeldBy)
		}
	}
	if sameTarget(Target{Serial: "a"}, Target{Serial: "b"}) {
		t.Error("another serial number is no other target")
	}
	if v := otherMachine("SN-1", nil); v.Outcome != hwid.Same {
		t.Errorf("no machine: %v", v)
	}
}
