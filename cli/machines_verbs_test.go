package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
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

// validating are the arguments that a command needs besides a machine and --validate-only.
var validating = map[string]string{
	"ingot decommission": "--mode soft-reset", "ingot reconfigure": "--hostname web-1", "ingot run start": "--plan p",
	"ingot provision": "--image debian-13",
}

// starters are the calls that start work.
var starters = []string{"RebootMachine", "NetbootMachine", "ReimageMachine", "ReconfigureMachine", "TestMachine",
	"EnterMaintenance", "ExitMaintenance", "StartRun", "StartWorkflow", "CreateRollout"}

// TestValidateOnlyStartsNothing: each command with the flag sends it with whatever starts work, for one machine and for
// several.
func TestValidateOnlyStartsNothing(t *testing.T) {
	commands := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.Flags().Lookup("validate-only") == nil {
			return
		}
		commands++
		path := c.CommandPath()
		for _, machines := range []string{"machine-1", "machine-[1-3]"} {
			line := strings.TrimPrefix(path, "ingot ") + " " + machines + " --validate-only " + validating[path]
			f := threeMachines()
			f.run(t, strings.Fields(line)...)
			started := 0
			for _, call := range f.asked {
				method, request, _ := strings.Cut(call, " ")
				method = method[strings.LastIndex(method, "/")+1:]
				if method == "CreateSelection" {
					t.Errorf("%s keeps a selection: %s", line, call)
				}
				for _, s := range starters {
					if method != s {
						continue
					}
					started++
					if !strings.Contains(strings.ReplaceAll(request, " ", ""), `"validate_only":true`) {
						t.Errorf("%s starts work: %s", line, call)
					}
				}
			}
			if started != 1 {
				t.Errorf("%s asks %d times: %v", line, started, f.asked)
			}
		}
	}
	walk(newRoot(&command.App{}))
	if commands < 10 {
		t.Errorf("%d commands take the flag", commands)
	}
}

// TestValidateOnlyPrintsHowToBegin for one machine.
func TestValidateOnlyPrintsHowToBegin(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	got := f.run(t, "reimage", "machine-1", "--image", "debian-13", "--validate-only", "--request-id", "r-1")
	for _, want := range []string{"nothing was begun", "ingot reimage machine-1 --image=debian-13 --request-id=r-1"} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("it does not print %q: %+v", want, got)
		}
	}
}

// TestADryRunStartsNothing: no command keeps a selection under its request id, since the work would then be done on the
// machines of the dry run. On one machine it asks the call itself.
func TestADryRunStartsNothing(t *testing.T) {
	commands := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.Flags().Lookup("validate-only") == nil {
			return
		}
		commands++
		path := c.CommandPath()
		for _, machines := range []string{"machine-1", "machine-[1-3]"} {
			line := strings.TrimPrefix(path, "ingot ") + " " + machines + " --dry-run --request-id r " + validating[path]
			f := threeMachines()
			f.run(t, strings.Fields(line)...)
			validated := 0
			for _, call := range f.asked {
				method, request, _ := strings.Cut(call, " ")
				method, request = method[strings.LastIndex(method, "/")+1:], strings.ReplaceAll(request, " ", "")
				if method == "CreateSelection" {
					t.Errorf("%s keeps a selection: %s", line, call)
				}
				for _, s := range starters {
					asks := strings.Contains(request, `"validate_only":true`) || strings.Contains(request, `"dry_run":true`)
					if method == s && !asks {
						t.Errorf("%s starts work: %s", line, call)
					} else if method == s {
						validated++
					}
				}
			}
			if alone := machines == "machine-1" && path != "ingot provision"; alone && validated != 1 {
				t.Errorf("%s asks the call %d times: %v", line, validated, f.asked)
			}
		}
	}
	walk(newRoot(&command.App{}))
	if commands < 10 {
		t.Errorf("%d commands take the flag", commands)
	}
}

// TestADryRunKnowsTheRequestID: what the same request has begun, and that it stands for other work. A host name fits
// one machine, and is no fault of its preview.
func TestADryRunKnowsTheRequestID(t *testing.T) {
	f := reimaging(pb.Operation_SUCCEEDED, nil)
	if got := f.run(t, "reimage", "machine-1", "--image", "u", "--request-id", "used", "--dry-run"); got.code != 4 ||
		!strings.Contains(got.err, "REQUEST_ID_REUSED") || got.out != "" {
		t.Errorf("other work: %+v", got)
	}
	f.run(t, "reimage", "machine-1", "--image", "u", "--request-id", "r-1")
	if got := f.run(t, "reimage", "machine-1", "--image", "u", "--request-id", "r-1", "--dry-run"); got.code != 0 ||
		!strings.Contains(got.err, "has begun "+f.op.GetOperationId()) {
		t.Errorf("the same again: %+v", got)
	}
	got := f.run(t, "reimage", "machine-1", "--image", "u", "--hostname", "web-1", "--dry-run")
	if got.code != 0 || !strings.Contains(got.out, "--hostname=web-1") {
		t.Errorf("a host name: %+v", got)
	}
	for _, call := range f.asked {
		if strings.Contains(call, "PreviewRollout") && strings.Contains(call, "web-1") {
			t.Errorf("the preview of several machines is asked with a host name: %s", call)
		}
	}
}

// TestANamedMachineThatIsLeftOut ends work on several with 5, with its name and reason on standard error: also where
// nothing is waited for, and where the same request has begun before. A filter's machines are left out as they come.
func TestANamedMachineThatIsLeftOut(t *testing.T) {
	for line, want := range map[string]int{
		"reboot machine-[1-4] --yes --no-wait":                                       5,
		"reboot machine-[1-4] --yes --no-wait -o json":                               5,
		"reboot machine-[1-4] --dry-run -o json":                                     5,
		"reboot -f testdata/machines.txt --yes --no-wait":                            5,
		"provision machine-1 machine-2 machine-4 --request-id again --no-wait":       5,
		"provision machine-1 machine-2 machine-4 --request-id again --dry-run":       5,
		"reboot --select rack=r1 --yes --no-wait":                                    0,
		"reboot --all --yes --no-wait":                                               0,
		"provision --select site=berlin --image debian-13 --request-id p1 --dry-run": 0,
	} {
		f := threeMachines()
		f.machines = append(f.machines, machine("machine-4", pb.MachineStatus_READY, pb.MachineStatus_IDLE, ""))
		got := f.run(t, strings.Fields(line)...)
		named := strings.Contains(got.err, "left out: machine-4: enter maintenance first (WRONG_PHASE)")
		if got.code != want || !named && !strings.Contains(line, "--dry-run") {
			t.Errorf("%s: exit code %d, want %d: %+v", line, got.code, want, got)
		}
	}
}
