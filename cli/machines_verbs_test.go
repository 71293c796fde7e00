package cli

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Verbs that are no operations take several machines too: each is sent once, after one question, and a field that is
// right for one machine alone is refused before anything is sent.
func TestVerbsOverSeveralMachines(t *testing.T) {
	const refused = 1
	for line, asked := range map[string]bool{
		"machine update machine-[1-3] --rack r2":         true,
		"machine update --all --label env=prod":          true,
		"machine identify machine-1 machine-2 machine-3": false,
		"flag machine-[1-3] RMA":                         true,
		"flag --all retired --off":                       true,
		"clear machine-[1-3] --comment power":            true,
		"bmc unpark machine-[1-3]":                       true,
	} {
		words := strings.Fields(line)
		if asked {
			f := threeMachines()
			if got := f.run(t, words...); got.code != refused || len(f.sent) != 0 {
				t.Errorf("%s, without an answer: sent %v (%+v)", line, f.sent, got)
			}
			got := f.run(t, append(words, "--dry-run")...)
			if got.code != 0 || got.out != "machine-1\nmachine-2\nmachine-3\n" || len(f.sent) != 0 {
				t.Errorf("%s --dry-run: sent %v (%+v)", line, f.sent, got)
			}
			words = append(words, "--yes")
		}
		f := threeMachines()
		got := f.run(t, words...)
		var ids []string
		for _, m := range f.sent {
			ids = append(ids, machineOf(m))
		}
		if want := "machine-1 machine-2 machine-3"; got.code != 0 || strings.Join(ids, " ") != want {
			t.Errorf("%s: sent to %v, want %s (%+v)", line, ids, want, got)
		}
	}
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	f.machines = nil
	got := f.run(t, "clear", "--all")
	if got.code != 3 || got.out != "" || !strings.Contains(got.err, "no machine matches") {
		t.Errorf("none: %+v", got)
	}
	for _, line := range []string{
		"machine update machine-[1-3] --mac-addresses 52:54:00:00:00:01 --yes",
		"machine update --select rack=r1 --bmc-endpoint 10.0.0.1 --yes",
		"flag machine-[1-3] broken --yes", "flag RMA --yes", "clear --yes",
	} {
		f := threeMachines()
		if got := f.run(t, strings.Fields(line)...); got.code != refused || len(f.sent) != 0 {
			t.Errorf("%s: sent %v (%+v)", line, f.sent, got)
		}
	}
}

func threeMachines() *fakeServer {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	for _, id := range []string{"machine-2", "machine-3"} {
		f.machines = append(f.machines, machine(id, pb.MachineStatus_MAINTENANCE, pb.MachineStatus_MAINTENANCE_IDLE, ""))
	}
	return f
}

// machineOf is the machine or node that a request names.
func machineOf(m proto.Message) string {
	if u, ok := m.(*pb.UpdateMachineRequest); ok {
		return u.GetMachine().GetMachineId()
	}
	r := m.ProtoReflect()
	for _, name := range []protoreflect.Name{"machine_id", "node_id"} {
		if field := r.Descriptor().Fields().ByName(name); field != nil {
			return r.Get(field).String()
		}
	}
	return ""
}
