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

// TestListOfNamedMachines, by id, range and external id, each once. What there is of them is printed, and what there is
// not makes the exit code 3.
func TestListOfNamedMachines(t *testing.T) {
	named := func() *fakeServer {
		f := fleet()
		f.machines[3].Spec = &pb.MachineSpec{ExternalId: "asset-77"}
		return f
	}
	for line, want := range map[string]string{
		"machine-2":                          "machine-2",
		"machine-[1-3] machine-2":            "machine-1 machine-2 machine-3",
		"asset-77 machine-1":                 "machine-1 machine-4",
		"asset-77 machine-4":                 "machine-4",
		"machine-[1-3] --limit 2":            "machine-1 machine-2",
		"machine-[1-3] --as-of 1h":           "machine-1 machine-2 machine-3",
		"machine-[1-2] --sort-by phase":      "machine-2 machine-1",
		"machine-[1-2] --sort-by machine_id": "machine-1 machine-2",
	} {
		got := named().run(t, strings.Fields("list -o name "+line)...)
		if got.code != 0 || got.out != strings.ReplaceAll(want, " ", "\n")+"\n" {
			t.Errorf("list %s: %+v, want %s", line, got, want)
		}
	}
	got := named().run(t, "list", "machine-1", "no-such", "machine-9", "-o", "name")
	if got.code != 3 || got.out != "machine-1\n" || !strings.Contains(got.err, "no-such") ||
		!strings.Contains(got.err, "machine-9") {
		t.Errorf("some: %+v", got)
	}
	got = named().run(t, "list", "no-such", "-o", "json")
	if got.code != 3 || got.out != "" || !strings.Contains(got.err, "no such machine: no-such (MACHINE_NOT_FOUND)") {
		t.Errorf("none: %+v", got)
	}
	got = named().run(t, "list", "asset-77", "--as-of", "1h")
	if got.code != 3 || got.out != "" {
		t.Errorf("an external id of a moment: %+v", got)
	}
}

// TestNamesGoWithTheirOwnFlags alone.
func TestNamesGoWithTheirOwnFlags(t *testing.T) {
	for _, line := range []string{
		"machine-1 --filter site=berlin", "machine-1 --select site=berlin", "machine-1 --watch", "machine-1 --view v",
		"--sort-by rack --order-by rack", "--watch --sort-by rack", "--watch --columns rack", "--sort-by speed",
		"--columns machine_id,speed", "--columns labels.", "machine-[1-",
	} {
		f := fleet()
		got := f.run(t, strings.Fields("list "+line)...)
		if got.code != 1 || got.out != "" || len(f.asked) > 0 {
			t.Errorf("list %s: %+v, asks %v", line, got, f.asked)
		}
	}
}

// TestListWithColumns shows those that are asked for, sorted by any.
func TestListWithColumns(t *testing.T) {
	f := fleet()
	for i, rack := range []string{"r10", "r9", "r9", "", "r2"} {
		f.machines[i].Spec = &pb.MachineSpec{Rack: rack}
		f.machines[i].Labels = map[string]string{"env": "e" + rack}
	}
	for line, want := range map[string]string{
		"list --columns machine_id,rack --sort-by rack": "MACHINE_ID  RACK\nmachine-4   -\nmachine-5   r2\n" +
			"machine-2   r9\nmachine-3   r9\nmachine-1   r10\n",
		"list --columns labels.env --sort-by labels.env --limit 2":                  "LABELS.ENV\ne\ner2\n",
		"list --columns machine_id -o wide --sort-by rack|desc --limit 1":           "MACHINE_ID\nmachine-1\n",
		"list machine-[1-2] --columns phase --sort-by machine_id":                   "PHASE\nREADY\nMAINTENANCE\n",
		"list --columns machine_id --sort-by machine_id|desc --limit 1 --as-of 30m": "MACHINE_ID\nmachine-5\n",
	} {
		words := strings.Fields(line)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "|", " ")
		}
		if got := f.run(t, words...); got.code != 0 || got.out != want {
			t.Errorf("%s: %+v, want\n%s", line, got, want)
		}
	}
}

// TestAWideListShowsWhereAMachineStands, what it has, and where it answers.
func TestAWideListShowsWhereAMachineStands(t *testing.T) {
	f := fleet()
	f.machines = f.machines[:2]
	f.machines[0].Spec = &pb.MachineSpec{Rack: "r42", Serial: "S-1", InstallAddress: "10.0.0.7/24",
		BmcEndpoint: "10.9.0.7"}
	f.machines[0].Status.OsImageDigest = "0123456789abcdef"
	f.machines[1].Spec = &pb.MachineSpec{InstallAddress: "10.0.0.8/24"}
	f.machines[1].Status.ProbedAddress = "10.0.0.9"
	got := f.run(t, "list", "-o", "wide")
	if !inOrder(got.out, "RACK", "IMAGE", "SERIAL", "ADDRESS", "BMC", "r42", "0123456789ab ", "S-1", "10.0.0.7 ",
		"10.9.0.7", "machine-2", "10.0.0.9") {
		t.Errorf("%+v", got)
	}
}

// TestOutputOfAPath prints what a path of RFC 9535 selects from the document that json prints.
func TestOutputOfAPath(t *testing.T) {
	for _, c := range []struct{ path, line, want string }{
		{"$.machines[*].machine_id", "list machine-[1-2]", "machine-1\nmachine-2\n"},
		{`$.machines[?@.status.effective_state == "MAINTENANCE"].machine_id`, "list", "machine-5\n"},
		{"$.machines[0].status.phase", "list", "READY\n"},
		{"$.machines[0].labels", "list", "{}\n"},
		{"$.operations.running", "status", "2\n"},
		{"$.checks[?@.level == 'ok'].check", "doctor", ""},
		{"$.version", "version", "test\n"},
		{"$.entries[0].event_data.comment", "audit", "swap\n"},
		{"$.machine_id", "machine get machine-1", "machine-1\n"},
		{"$.no.such", "machine get machine-1", ""},
	} {
		got := fleet().run(t, append(strings.Fields(c.line), "-o", "jsonpath="+c.path)...)
		switch {
		case c.line == "doctor":
			if !strings.Contains(got.out, "controller\n") || strings.ContainsAny(got.out, "{\"") {
				t.Errorf("%s: %+v", c.line, got)
			}
		case got.code != 0 || got.out != c.want:
			t.Errorf("%s -o jsonpath=%s: %+v, want %q", c.line, c.path, got, c.want)
		}
	}
	f := fleet()
	f.machines[0].Labels = map[string]string{"note": "a\x1b[2Jb"}
	if got := f.run(t, "list", "-o", "jsonpath=$.machines[0].labels.note"); strings.Contains(got.out, "\x1b") {
		t.Errorf("it steers the terminal: %q", got.out)
	}
	for _, path := range []string{"", "machines", "{.machines}", "$.machines[", "$['a"} {
		f := fleet()
		if got := f.run(t, "list", "-o", "jsonpath="+path); got.code != 1 || !strings.Contains(got.err, "RFC 9535") ||
			len(f.asked) > 0 {
			t.Errorf("jsonpath=%s: %+v", path, got)
		}
	}
}
