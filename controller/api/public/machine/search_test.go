package machine_test

import (
	"fmt"
	"slices"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/internal/failure"
)

func search(t *testing.T, r *publictest.Rig, text string, limit int32) (found []string, more bool) {
	t.Helper()
	a, err := r.Machines.SearchMachines(t.Context(), &pb.SearchMachinesRequest{Text: text, Limit: limit})
	if err != nil {
		t.Fatalf("search %q: %v", text, err)
	}
	for _, h := range a.GetHits() {
		found = append(found, fmt.Sprintf("%s %s=%s", h.GetMachineId(), h.GetField(), h.GetValue()))
	}
	return found, a.GetMore()
}

// TestSearchMachines: a machine is found by each thing that a person may have of it, as long as it is so.
func TestSearchMachines(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 3 {
		m := publictest.NewMachine(i)
		m.Spec.MacAddresses = []string{fmt.Sprintf("52:54:00:00:12:0%d", i)}
		m.Spec.Serial = fmt.Sprintf("SN-%d", i)
		m.Spec.BmcEndpoint = fmt.Sprintf("10.9.0.%d:443", i+1)
		m.Labels = map[string]string{"asset": fmt.Sprintf("A_7-%d", i)}
		r.Register(m)
	}
	for text, want := range map[string][]string{
		"M-001":              {"m-001 machine_id=m-001"},
		"m-001.example.org.": {"m-001 machine_id=m-001"},
		"sn-2":               {"m-002 serial=sn-2"},
		"5254.0000.1201":     {"m-001 mac=52:54:00:00:12:01"},
		"52-54-00-00-12":     {"m-000 mac=52:54:00:00:12:00", "m-001 mac=52:54:00:00:12:01", "m-002 mac=52:54:00:00:12:02"},
		"10.9.0.3":           {"m-002 bmc=10.9.0.3:443"},
		"a_7-1":              {"m-001 label=asset=a_7-1"},
		"_":                  {"m-000 label=asset=a_7-0", "m-001 label=asset=a_7-1", "m-002 label=asset=a_7-2"},
		"%":                  nil, "MACHINE_ID": nil,
		"' OR true --": nil,
	} {
		if found, more := search(t, r, text, 0); !slices.Equal(found, want) || more {
			t.Errorf("%s: %q %v, want %q", text, found, more, want)
		}
	}
	if found, more := search(t, r, "m-", 2); len(found) != 2 || !more {
		t.Errorf("two of three: %q, more %v", found, more)
	}
	m := &pb.Machine{MachineId: "m-001", Spec: &pb.MachineSpec{Serial: "other"}}
	if _, err := r.Machines.UpdateMachine(t.Context(), &pb.UpdateMachineRequest{Machine: m}); err != nil {
		t.Fatal(err)
	}
	if found, _ := search(t, r, "sn-1", 0); found != nil {
		t.Errorf("a number that it no longer has: %q", found)
	}
	if _, err := r.Machines.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{MachineId: "m-002"}); err != nil {
		t.Fatal(err)
	}
	if found, _ := search(t, r, "sn-2", 0); found != nil {
		t.Errorf("a deleted machine: %q", found)
	}
	for _, bad := range []*pb.SearchMachinesRequest{{}, {Text: "x", Limit: 101}, {Text: "x", Limit: -1}, {Text: "a\x00"}} {
		if _, err := r.Machines.SearchMachines(t.Context(), bad); failure.From(err).Reason != "INVALID_FIELD" {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
