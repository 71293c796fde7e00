package view

import (
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 850 * time.Millisecond: "850ms", 12 * time.Second: "12s", 272 * time.Second: "4m 32s",
		65 * time.Minute: "1h 05m", 76 * time.Hour: "3d 4h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

func TestWidth(t *testing.T) {
	for text, want := range map[string]int{"abc": 3, "✓": 1, "⚠ATTENTION": 10, "⛔BLOCKED": 9, "\x1b[31mred\x1b[0m": 3,
		"e\u0301": 1} {
		if got := Width(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

func TestCleanTakesControlOut(t *testing.T) {
	if got := Clean("a\x1b[2Jb\rc\x07\u202ed\u009b1m\tü✓"); got != "a[2Jbcd1m ü✓" {
		t.Errorf("got %q", got)
	}
}

func TestTableAlignsColouredCells(t *testing.T) {
	table := &Table{Header: []string{"A", "B"}}
	table.Add(Style{Colour: true}.Good("ok"), "x")
	table.Add("", "y")
	if got, want := table.String(), "A   B\n\x1b[32mok\x1b[0m  x\n-   y\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBar(t *testing.T) {
	for percent, want := range map[int]string{-5: "[░░░░]", 50: "[██░░]", 250: "[████]"} {
		if got := Bar(percent, 4); got != want {
			t.Errorf("%d: got %s, want %s", percent, got, want)
		}
	}
}

// TestEffectiveStatesHaveTheirColours, and signs where an operator should look. The eight colours of a terminal have no
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
	for _, c := range []*pb.Condition{
		{Type: "Degraded"}, {Type: "Degraded", Status: true}, {Type: "RAIDDegraded", Status: true},
		{Type: "HardwareFault", Status: true}, {Type: "Drained", Status: true},
	} {
		degraded := c.GetStatus() && c.GetType() != "Drained"
		m.Status.Conditions = []*pb.Condition{c}
		table, sheet := TableOf(Style{}, false, Style.Machines, m).String(), Style{}.Machine(m)
		for where, text := range map[string]string{"list": table, "sheet": sheet} {
			if strings.Contains(text, "IDLE ⚠DEGRADED") != degraded || !strings.Contains(text, "IDLE") {
				t.Errorf("with %v the %s shows:\n%s", c, where, text)
			}
		}
	}
}
