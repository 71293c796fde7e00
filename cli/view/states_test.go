package view

import (
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// TestEffectiveStatesHaveTheirColours, and signs where somebody should look. The eight colours of a terminal have no
// orange: it is bright yellow.
func TestEffectiveStatesHaveTheirColours(t *testing.T) {
	for state, want := range map[pb.MachineStatus_EffectiveState]string{
		pb.MachineStatus_NEW:              "\x1b[90mNEW\x1b[0m",
		pb.MachineStatus_IDLE:             "\x1b[32mIDLE\x1b[0m",
		pb.MachineStatus_BUSY:             "\x1b[34mBUSY\x1b[0m",
		pb.MachineStatus_MAINTENANCE_IDLE: "\x1b[33mMAINTENANCE\x1b[0m",
		pb.MachineStatus_ATTENTION:        "\x1b[1;33m⚠ATTENTION\x1b[0m",
		pb.MachineStatus_BLOCKED:          "\x1b[31m⛔BLOCKED\x1b[0m",
	} {
		if got := (Style{Colour: true}).effective(state); got != want {
			t.Errorf("%s is shown as %q, want %q", state, got, want)
		}
		if got := (Style{}).effective(state); strings.Contains(got, "\x1b") || !strings.HasSuffix(got, Effective(state)) {
			t.Errorf("%s without colours is %q", state, got)
		}
	}
}

// TestDegradedIsABanner: beside the effective state, which it does not change, in the list and on the sheet.
func TestDegradedIsABanner(t *testing.T) {
	m := &pb.Machine{MachineId: "m-1", Status: &pb.MachineStatus{Phase: pb.MachineStatus_READY,
		EffectiveState: pb.MachineStatus_IDLE}}
	for _, degraded := range []bool{false, true} {
		m.Status.Conditions = []*pb.Condition{{Type: "Degraded", Status: degraded, Reason: "CONFIG_DRIFT"}}
		table, sheet := Style{}.Machines([]*pb.Machine{m}, false, time.Now()).String(), Style{}.Machine(m, time.Now())
		for where, text := range map[string]string{"list": table, "sheet": sheet} {
			if strings.Contains(text, "IDLE ⚠DEGRADED") != degraded || !strings.Contains(text, "IDLE") {
				t.Errorf("degraded %t, the %s shows:\n%s", degraded, where, text)
			}
		}
	}
}
