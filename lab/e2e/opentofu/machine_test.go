//go:build opentofu

package opentofu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// blocks are the contents of a page's blocks in a language.
func blocks(t *testing.T, page, language string) (out []string) {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(raw), "```") {
		if text, ok := strings.CutPrefix(part, language+"\n"); ok && i%2 == 1 {
			out = append(out, text)
		}
	}
	return out
}

// TestReadme types the README's commands, beside a machine that is registered and has an agent.
func TestReadme(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	const page = "../../../integrations/opentofu/README.md"
	c.NewMachine(t, harness.MachineOptions{ID: "web-1"}).WaitConnected()
	w := bareWorkspace(t, c, blocks(t, page, "hcl")[0])
	ran := 0
	for _, block := range blocks(t, page, "bash") {
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(line, "#")
			words := strings.Fields(line)
			if len(words) == 0 || words[0] != "tofu" {
				continue
			}
			ran++
			w.must(words[1:]...)
		}
	}
	if ran != 6 {
		t.Errorf("%d commands were run", ran)
	}
	if _, err := c.Machines().GetMachine(t.Context(),
		&baremetalv1.GetMachineRequest{MachineId: "web-1"}); !harness.HasReason(err, "MACHINE_NOT_FOUND") {
		t.Errorf("after destroy: %v", err)
	}
	if got := installs(c.Client, "web-1"); len(got) != 1 || got[0].GetPhase() != rig.Succeeded {
		t.Errorf("installations: %v", got)
	}
}

// TestAMachineFromBeginningToEnd registers a machine, changes it behind the tool's back, has that repaired, adopts it
// in another workspace, and lets it go.
func TestAMachineFromBeginningToEnd(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	config := head + `
resource "ingot_machine" "m" {
  machine_id = "life-1"
  labels     = { tier = "web" }
  spec       = { rack = "r7", mac_addresses = ["52-54-00-00-07-AA"] }
}
`
	w := newWorkspace(t, c, config)
	w.apply()
	w.plans(0)
	m := c.Machine("life-1")
	if m.GetLabels()["tier"] != "web" || m.GetSpec().GetRack() != "r7" ||
		m.GetSpec().GetMacAddresses()[0] != "52:54:00:00:07:aa" {
		t.Fatalf("registered as %v", m)
	}

	// Others change our fields, and theirs.
	if code, out := c.Ingot("machine", "update", "life-1", "--rack", "r9", "--location", "cage 4", "--label", "tier=db",
		"--label", "owner=others"); code != 0 {
		t.Fatal(out)
	}
	if out := w.plans(2); !strings.Contains(out, `"r9" -> "r7"`) || !strings.Contains(out, `"db" -> "web"`) ||
		strings.Contains(out, "cage 4\" ->") || strings.Contains(out, "others\" ->") {
		t.Errorf("the plan is %s", out)
	}
	w.apply()
	w.plans(0)
	m = c.Machine("life-1")
	if m.GetLabels()["tier"] != "web" || m.GetLabels()["owner"] != "others" || m.GetSpec().GetRack() != "r7" ||
		m.GetSpec().GetLocation() != "cage 4" {
		t.Errorf("repaired to %v", m)
	}

	// Clearing is explicit, and only named fields are cleared.
	w.write(strings.NewReplacer(`rack = "r7"`, `rack = ""`, `tier = "web"`, `stage = "test"`).Replace(config))
	w.apply()
	w.plans(0)
	m = c.Machine("life-1")
	if m.GetSpec().GetRack() != "" || m.GetLabels()["stage"] != "test" || m.GetLabels()["tier"] != "" ||
		m.GetLabels()["owner"] != "others" || len(m.GetSpec().GetMacAddresses()) != 1 {
		t.Errorf("cleared to %v", m)
	}

	// Another configuration can't take it by accident, and adopts it when told to.
	other := newWorkspace(t, c, head+`
resource "ingot_machine" "m" {
  machine_id = "life-1"
  labels     = { stage = "test", owner = "others" }
  spec       = { rack = "r8" }
}
`)
	other.refused(applying, "MACHINE_EXISTS", "tofu import ingot_machine.NAME life-1")
	other.must("import", "-input=false", "ingot_machine.m", "life-1")
	if out := other.plans(2); !strings.Contains(out, `"r8"`) || strings.Contains(out, "-> null") {
		t.Errorf("after the import the plan is %s", out)
	}
	other.apply()
	other.plans(0)

	other.must(leaving...)
	if _, err := c.Machines().GetMachine(t.Context(),
		&baremetalv1.GetMachineRequest{MachineId: "life-1"}); !harness.HasReason(err, "MACHINE_NOT_FOUND") {
		t.Errorf("after destroy: %v", err)
	}
	w.refused(applying, "MACHINE_DELETED", "Choose another machine_id")
}

func letGo(id, how string) string {
	return fmt.Sprintf(head+"resource \"ingot_machine\" \"m\" {\n  machine_id = %q\n  on_destroy = %q\n}\n", id, how)
}

// inService is a machine in service that a configuration without on_destroy has adopted.
func inService(t *testing.T, c *harness.ControllerProcess, id string) (*harness.Machine, *workspace) {
	t.Helper()
	m := c.NewMachine(t, harness.MachineOptions{ID: id})
	m.WaitConnected()
	w := newWorkspace(t, c, fmt.Sprintf(head+"resource \"ingot_machine\" \"m\" {\n  machine_id = %q\n}\n", id))
	w.must("import", "-input=false", "ingot_machine.m", id)
	testkit.Eventually(t, patience, func() bool {
		return c.Machine(id).GetStatus().GetNodeState() == baremetalv1.NodeState_NODE_STATE_ACTIVE
	}, "%s is not in service", id)
	return m, w
}

func erasures(m *harness.Machine) (n int) {
	for _, r := range m.Journal() {
		if r.Stage == sim.StageEffect && r.Kind == sim.KindErase {
			n++
		}
	}
	return n
}

// TestNothingIsErasedUnasked: by default a machine in service is not let go; purge lets it go with its disks.
func TestNothingIsErasedUnasked(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	m, w := inService(t, c, "keep-1")
	w.refused(leaving, "DECOMMISSION_REQUIRED", "Next step:", `on_destroy = "purge"`)
	if c.Machine("keep-1").GetDeletedAt() != nil {
		t.Fatal("the machine is gone")
	}
	w.write(letGo("keep-1", "shred"))
	w.refused(applying, `Must be one of "release", "purge", "erase"`)
	w.write(letGo("keep-1", "purge"))
	w.apply()
	w.must(leaving...)
	if c.Machine("keep-1").GetDeletedAt() == nil || erasures(m) != 0 || writes(m) != 0 {
		t.Errorf("the machine is %v, its disks saw %v", c.Machine("keep-1"), m.Journal())
	}
}

// TestAnErasureIsDoneOnce: erase is done once, although tofu is killed in the middle of it.
func TestAnErasureIsDoneOnce(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	m, w := inService(t, c, "erase-1")
	w.write(letGo("erase-1", "erase"))
	w.apply()
	if erasures(m) != 0 {
		t.Error("an apply erased")
	}
	r := w.start(leaving...)
	w.await(r, "decommissioned", func() bool { return len(c.Commands("erase-1")) > 0 })
	r.kill(false)
	w.must(leaving...)
	if c.Machine("erase-1").GetDeletedAt() == nil {
		t.Error("the machine is not gone")
	}
	n := 0
	for _, o := range c.OperationsOf("erase-1") {
		if o.GetType() == baremetalv1.Operation_DECOMMISSION {
			n++
		}
	}
	if n != 1 || erasures(m) != 1 {
		t.Errorf("%d decommissions, %d erasures: %v", n, erasures(m), m.Journal())
	}
}

// TestAnImage is uploaded, found again, and removed.
func TestAnImage(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	w := newWorkspace(t, c, head+`
resource "ingot_image" "i" {
  image_ref   = "small-1"
  source      = "small.raw"
  format      = "raw"
  sha256_file = filesha256("small.raw")
}
output "size" { value = ingot_image.i.size_bytes }
`)
	if err := os.WriteFile(filepath.Join(w.dir, "small.raw"), rig.WholeDisk(2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := w.apply(); !strings.Contains(out, fmt.Sprintf("size = %d", 2<<20)) {
		t.Error(out)
	}
	w.plans(0)
	if code, out := c.Ingot("image", "remove", "small-1"); code != 0 {
		t.Fatal(out)
	}
	if out := w.plans(2); !strings.Contains(out, "1 to add") {
		t.Error(out)
	}
	w.apply()
	w.must(leaving...)
	images := harness.Must(t, c.Admin().ListImages, &baremetalv1.ListImagesRequest{})
	if len(images.GetImages()) != 0 {
		t.Errorf("left: %v", images)
	}
}

// TestSources reads machines and an operation, and shows an error of a filter.
func TestSources(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	for i := range 3 {
		c.Register(&baremetalv1.Machine{MachineId: fmt.Sprintf("s-%d", i), Labels: map[string]string{"n": fmt.Sprint(i)},
			Spec: &baremetalv1.MachineSpec{Provider: "fake", Rack: "r1"}})
	}
	o := harness.Must(t, c.Machines().EnterMaintenance,
		&baremetalv1.EnterMaintenanceRequest{MachineId: "s-1", RequestId: "in"})
	c.Wait(o.GetOperationId(), rig.Soon)
	config := head + fmt.Sprintf(`
data "ingot_machines" "some" {
  filter   = "rack=r1,labels.n in (1, 2)"
  order_by = "machine_id desc"
}
data "ingot_operation" "o" { operation_id = %q }
locals { o = data.ingot_operation.o }
output "machines" {
  value = [for m in data.ingot_machines.some.machines : "${m.machine_id} ${m.phase} ${m.spec.rack} ${m.labels.n}"]
}
output "operation" { value = "${local.o.type} ${local.o.phase} ${local.o.request_id}" }
`, o.GetOperationId())
	w := newWorkspace(t, c, config)
	out := w.apply()
	for _, want := range []string{`"s-2 FACTORY_READY r1 2", "s-1 MAINTENANCE r1 1"`, `"ENTER_MAINTENANCE SUCCEEDED in"`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
	w.write(strings.Replace(config, "rack=r1", "rock=r1", 1))
	w.refused(applying, "INVALID_FILTER", "Next step:")
}
