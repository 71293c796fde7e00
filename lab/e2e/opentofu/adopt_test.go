//go:build opentofu

package opentofu

import (
	"archive/zip"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// fleetSize is how many machines are adopted at once.
const fleetSize = 50

// before are labels that a machine has before a tool comes: a budget's, a claim's, and a team's.
func before(i int) map[string]string {
	return map[string]string{"power-domain": fmt.Sprint("pdu-", i%5), "capi.ingot.dev/claim": fmt.Sprint("uid-", i),
		"team": "payments"}
}

// adopted is a configuration that imports the fleet, with an argument of each machine.
func adopted(argument string) string {
	return head + fmt.Sprintf(`
locals { ids = toset([for i in range(%d) : "fleet-${i}"]) }
import {
  for_each = local.ids
  to       = ingot_machine.m[each.key]
  id       = each.key
}
resource "ingot_machine" "m" {
  for_each   = local.ids
  machine_id = each.key
  %s
}
`, fleetSize, argument)
}

// TestAnAdoptedFleetLosesNothing imports a fleet with labels, claims and a budget, and plans, applies, replaces, taints
// and destroys it.
func TestAnAdoptedFleetLosesNothing(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	if code, out := c.Ingot("budget", "set", "power", "--domain", "label:power-domain", "--at-once", "2"); code != 0 {
		t.Fatal(out)
	}
	was := map[string]*baremetalv1.Machine{}
	for i := range fleetSize {
		id := fmt.Sprint("fleet-", i)
		was[id] = c.Register(&baremetalv1.Machine{MachineId: id, Labels: before(i),
			Spec: &baremetalv1.MachineSpec{Provider: "fake", Rack: fmt.Sprint("r", i%7), Location: "cage 4"}})
	}
	lost := func(after string, more map[string]string) {
		t.Helper()
		for id, m := range was {
			want := maps.Clone(m.GetLabels())
			maps.Copy(want, more)
			is := c.Machine(id)
			if !maps.Equal(is.GetLabels(), want) || !proto.Equal(is.GetSpec(), m.GetSpec()) || is.GetDeletedAt() != nil {
				t.Errorf("after %s %s is %v, was %v", after, id, is, m)
			}
		}
	}

	w := newWorkspace(t, c, adopted(""))
	w.apply()
	w.plans(0)
	lost("the import", nil)
	w.write(adopted(`labels = { managed = "tofu" }`))
	w.apply()
	w.plans(0)
	managed := map[string]string{"managed": "tofu"}
	lost("the first label", managed)
	w.write(adopted(`labels = {}`))
	w.apply()
	lost("the label's end", nil)

	const way = "tofu state rm"
	one := `ingot_machine.m["fleet-1"]`
	w.refused([]string{"plan", "-input=false", "-replace=" + one}, "A machine is not replaced", way)
	w.refused(append(applying, "-replace="+one), "A machine is not replaced", way)
	w.write(strings.Replace(adopted(""), "machine_id = each.key", `machine_id = "${each.key}-b"`, 1))
	w.refused([]string{"plan", "-input=false"}, "A machine is not replaced", way)
	w.write(adopted(""))
	w.must("taint", one)
	w.refused(applying, "A machine is not replaced", "tofu untaint")
	w.must("untaint", one)
	w.apply()
	w.plans(0)
	lost("replacements", nil)

	_, out := w.tofu("plan", "-destroy", "-input=false", "-target="+one)
	for _, text := range []string{"A machine is removed", "takes fleet-1 out of the inventory unless it is in service",
		"returns as a new record under a new machine_id", "capi.ingot.dev/claim=uid-1", "team=payments"} {
		if !strings.Contains(out, text) {
			t.Errorf("the plan of a destroy does not say %q: %s", text, out)
		}
	}
	w.must(append(leaving, "-target="+one)...)
	if c.Machine("fleet-1").GetDeletedAt() == nil {
		t.Error("the destroy removed nothing")
	}
	delete(was, "fleet-1")
	lost("one destroy", nil)
}

// TestATypingErrorLeavesTheMachineInService has a machine in service installed with an error in each argument.
func TestATypingErrorLeavesTheMachineInService(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	withImage(t, c, "debian-12")
	const id = "typed-1"
	c.NewMachine(t, harness.MachineOptions{ID: id}).WaitConnected()
	for _, args := range [][]string{{"enter-maintenance", id}, {"exit-maintenance", id}} {
		if code, out := c.Ingot(args...); code != 0 {
			t.Fatal(out)
		}
	}
	done := len(c.OperationsOf(id))
	good := installation(id, 1)
	for name, bad := range map[string]string{
		"image":          strings.Replace(good, "debian-12", "debain-12", 1),
		"machine":        strings.Replace(good, id, "typed-2", 1),
		"path":           strings.Replace(good, "generation ", "path = \"kexek\"\n  generation ", 1),
		"timeout":        strings.Replace(good, "generation ", "timeout = \"2x\"\n  generation ", 1),
		"generation":     strings.Replace(good, "generation = 1", "generation = -1", 1),
		"agentless":      strings.Replace(good, "generation ", "agentless = \"yes please\"\n  generation ", 1),
		"hostname":       seeded(good, `hostname = "web 1"`),
		"key":            seeded(good, `ssh_authorized_keys = ["ssh-edd25519 AAAA"]`),
		"user-data":      seeded(good, `user_data_wo = "cloud-config"`),
		"network config": seeded(good, `network_config_wo = "\t{"`),
	} {
		w := newWorkspace(t, c, bad)
		w.refused(applying)
		if m := c.Machine(
			id,
		); m.GetStatus().GetPhase() != baremetalv1.MachineStatus_READY ||
			len(c.OperationsOf(id)) != done {
			t.Errorf("an error in %s: the machine is in %s, with %v", name, m.GetStatus().GetPhase(), c.OperationsOf(id))
		}
	}
	newWorkspace(t, c, good).apply()
}

// seeded is an installation with a seed.
func seeded(config, seed string) string {
	return strings.Replace(config, "generation ", "seed = { "+seed+" }\n  generation ", 1)
}

// withImage adds an image, so that other names are none.
func withImage(t *testing.T, c *harness.ControllerProcess, name string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(file, rig.WholeDisk(2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := c.Ingot("image", "add", name, file); code != 0 {
		t.Fatal(out)
	}
}

// TestUserDataIsInNoState has a machine installed with user-data, which no plan and no state holds, and raises its
// version.
func TestUserDataIsInNoState(t *testing.T) {
	t.Parallel()
	c := harness.NewControllerProcess(t)
	c.Start("")
	m := c.NewMachine(t, harness.MachineOptions{ID: "seeded-1"})
	m.WaitConnected()
	const secret, network = "correct-horse-battery", "staple-of-the-network"
	config := seeded(
		installation(m.ID, 1),
		`hostname = "web-1", user_data_wo_version = 1, user_data_wo = "#cloud-config\n# `+
			secret+`\n", network_config_wo = "version: 2\n# `+network+`\n"`,
	)
	w := newWorkspace(t, c, config)
	if out := w.must("plan", "-input=false", "-out=saved"); strings.Contains(out, secret) {
		t.Errorf("the plan prints it: %s", out)
	}
	w.must("apply", "-input=false", "saved")
	w.plans(0)
	if got := installs(c.Client, m.ID); len(got) != 1 || got[0].GetParams()["seed"] == "" {
		t.Errorf("installed without a seed: %v", got)
	}
	for _, file := range []string{"saved", "terraform.tfstate"} {
		if text := unpacked(t, filepath.Join(w.dir, file)); strings.Contains(text, secret) ||
			strings.Contains(text, network) || !strings.Contains(text, "web-1") {
			t.Errorf("%s holds the content, or not the rest: %s", file, text)
		}
	}
	w.write(strings.Replace(config, "version = 1", "version = 2", 1))
	w.refused(applying, "seed has changed", "Set generation = 2")
	w.write(strings.NewReplacer("version = 1", "version = 2", "generation = 1", "generation = 2").Replace(config))
	w.apply()
	onceWritten(t, c, m, 2)
}

// unpacked is the content of a file; of a saved plan that of all files in it, but for the configuration.
func unpacked(t *testing.T, file string) string {
	t.Helper()
	packed, err := zip.OpenReader(file)
	if err != nil {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	defer packed.Close()
	var out strings.Builder
	for _, f := range packed.File {
		if strings.HasPrefix(f.Name, "tfconfig/") {
			continue // the configuration as it was written
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&out, r); err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	return out.String()
}
