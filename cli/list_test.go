package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

func machine(
	id string, phase pb.MachineStatus_Phase, eff pb.MachineStatus_EffectiveState, op string, conditions ...string,
) *pb.Machine {
	m := &pb.Machine{MachineId: id, CreatedAt: at(0),
		Status: &pb.MachineStatus{Phase: phase, EffectiveState: eff, ActiveOperationId: op}}
	for _, c := range conditions {
		m.Status.Conditions = append(m.Status.Conditions, &pb.Condition{Type: c, Status: true})
	}
	return m
}

func fleet() *fakeServer {
	f := &fakeServer{machines: []*pb.Machine{
		machine("machine-1", pb.MachineStatus_READY, pb.MachineStatus_IDLE, "", "Reachable", "Provisioned"),
		machine("machine-2", pb.MachineStatus_MAINTENANCE, pb.MachineStatus_BUSY, "op-abc", "Reachable", "Provisioned"),
		machine("machine-3", pb.MachineStatus_READY, pb.MachineStatus_ATTENTION, "", "Reachable", "Provisioned",
			"NeedsIntervention"),
		machine("machine-4", pb.MachineStatus_READY, pb.MachineStatus_BLOCKED, "", "RMA"),
		machine("machine-5", pb.MachineStatus_MAINTENANCE, pb.MachineStatus_MAINTENANCE_IDLE, ""),
	}}
	f.machines[2].Status.AttentionReason = "DISK_WRITE_ERROR"
	return f
}

func TestListTable(t *testing.T) {
	want := `MACHINE_ID  EFFECTIVE    PHASE        REACHABLE  PROVISIONED  ACTIVE_OP  ATTENTION
machine-1   IDLE         READY        ✓          ✓            -          -
machine-2   BUSY         MAINTENANCE  ✓          ✓            op-abc     -
machine-3   ⚠ATTENTION   READY        ✓          ✓            -          DISK_WRITE_ERROR
machine-4   ⛔BLOCKED    READY        -          -            -          -
machine-5   MAINTENANCE  MAINTENANCE  -          -            -          -
`
	if got := fleet().run(t, "list"); got.out != want || got.code != 0 {
		t.Errorf("exit code %d, stderr %q, table:\n%s\nwant:\n%s", got.code, got.err, got.out, want)
	}
}

func TestListJSON(t *testing.T) {
	f := fleet()
	f.machines[4].Labels = map[string]string{"effective_state": "MAINTENANCE_IDLE"}
	got := f.run(t, "list", "-o", "json")
	var doc struct {
		Machines []struct {
			MachineID string `json:"machine_id"`
			CreatedAt string `json:"created_at"`
			Labels    map[string]string
			Status    struct {
				EffectiveState string `json:"effective_state"`
				Schedulable    *bool
			}
		}
	}
	if err := json.Unmarshal([]byte(got.out), &doc); err != nil {
		t.Fatalf("read JSON: %v\n%s", err, got.out)
	}
	if len(doc.Machines) != 5 {
		t.Fatalf("%d machines, want all 5 pages", len(doc.Machines))
	}
	last := doc.Machines[4]
	if last.Status.EffectiveState != "MAINTENANCE" {
		t.Errorf("effective_state %q, want MAINTENANCE", last.Status.EffectiveState)
	}
	if last.Labels["effective_state"] != "MAINTENANCE_IDLE" {
		t.Errorf("a label was rewritten: %v", last.Labels)
	}
	if last.CreatedAt != "2026-03-01T12:00:00Z" {
		t.Errorf("created_at %q", last.CreatedAt)
	}
	if last.Status.Schedulable == nil {
		t.Error("a false field is missing from JSON")
	}
}

func TestListOtherOutputs(t *testing.T) {
	f := fleet()
	if got := f.run(t, "list", "-o", "name", "--limit", "2"); got.out != "machine-1\nmachine-2\n" {
		t.Errorf("names: %q", got.out)
	}
	if got := f.run(t, "list", "-o", "yaml"); !strings.Contains(got.out, "  - machine_id: machine-1\n") ||
		!strings.Contains(got.out, "effective_state: MAINTENANCE\n") {
		t.Errorf("YAML:\n%s", got.out)
	}
	if got := f.run(t, "list", "-o", "wide"); !strings.Contains(got.out, "Reachable=✓, Provisioned=✓") {
		t.Errorf("wide:\n%s", got.out)
	}
	if got := f.run(t, "list", "-o", "xml"); got.code != 1 || !strings.Contains(got.err, "--output") {
		t.Errorf("unknown output: %+v", got)
	}
}

func TestColoursOnlyOnATerminal(t *testing.T) {
	f := fleet()
	terminal := func(c *command.Config) { c.OutTerminal = true }
	if got := f.runWith(t, terminal, "list"); !strings.Contains(got.out, "\x1b[32mIDLE\x1b[0m") {
		t.Errorf("no colours on a terminal: %q", got.out)
	}
	noColor := func(c *command.Config) {
		terminal(c)
		env := c.Getenv
		c.Getenv = func(k string) string {
			if k == "NO_COLOR" {
				return "1"
			}
			return env(k)
		}
	}
	for _, got := range []result{f.run(t, "list"), f.runWith(t, terminal, "list", "--no-color"),
		f.runWith(t, noColor, "list")} {
		if strings.Contains(got.out, "\x1b") {
			t.Errorf("colours where there must be none: %q", got.out)
		}
	}
}

// TestFlagsOfAListThatExcludeEachOther are refused before anything is asked.
func TestFlagsOfAListThatExcludeEachOther(t *testing.T) {
	for _, line := range []string{
		"list --filter site=berlin --select rack=r1", "list --as-of 1h --watch", "list --as-of 1h --order-by rack",
		"list --watch --order-by rack", "list --watch --limit 3",
	} {
		f := fleet()
		if got := f.run(t, strings.Fields(line)...); got.code != 1 || got.out != "" || len(f.asked) > 0 {
			t.Errorf("%s: %+v, asks %v", line, got, f.asked)
		}
	}
}

// TestAPreviewOfNoMachine is no success: 3 where a filter of a verb matches none, 4 where a rollout would be empty.
func TestAPreviewOfNoMachine(t *testing.T) {
	for line, want := range map[string]int{
		"reboot --select rack=none --dry-run":                       3,
		"reboot --select rack=none --dry-run -o json":               3,
		"reboot --select rack=none --yes":                           3,
		"provision --select rack=none --image debian-13 --dry-run":  3,
		"rollout preview --type REBOOT --filter rack=none":          4,
		"rollout create --type REBOOT --filter rack=none --dry-run": 4,
		"rollout preview --type REBOOT --filter rack=none -o json":  4,
		"rollout create --type REBOOT --filter rack=r1 --dry-run":   0,
	} {
		f := fleet()
		got := f.run(t, strings.Fields(line)...)
		if got.code != want {
			t.Errorf("%s: exit code %d, want %d: %+v", line, got.code, want, got)
		}
		if want == 3 && (got.out != "" || !strings.Contains(got.err, "no machine matches rack=none")) {
			t.Errorf("%s: %+v", line, got)
		}
		if slices.ContainsFunc(f.asked, func(c string) bool { return strings.Contains(c, "CreateRollout") }) {
			t.Errorf("%s begins work: %v", line, f.asked)
		}
	}
}
