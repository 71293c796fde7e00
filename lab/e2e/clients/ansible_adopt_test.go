//go:build ansible

package clients

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
)

// fleetSize is how many machines are adopted at once.
const fleetSize = 50

// TestAnsibleAdoptsAFleetAndLosesNothing adds a label to machines with labels, a claim and a budget's domain. All else
// stays.
func TestAnsibleAdoptsAFleetAndLosesNothing(t *testing.T) {
	t.Parallel()
	a := newAnsible(t)
	if code, out := a.s.Ingot("budget", "set", "power", "--domain", "label:power-domain", "--at-once", "2"); code != 0 {
		t.Fatal(out)
	}
	was := map[string]*baremetalv1.Machine{}
	var rows []document
	for i := range fleetSize {
		id := fmt.Sprint("fleet-", i)
		was[id] = a.s.Register(&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{Provider: "fake",
			Rack: "r1", Location: "cage 4"}, Labels: map[string]string{"power-domain": fmt.Sprint("pdu-", i%5),
			"capi.ingot.dev/claim": fmt.Sprint("uid-", i), "team": "payments"}})
		rows = append(rows, document{"name": id, "labels": document{"managed": "ansible"}})
	}
	if n, out := a.play("reconcile.yml", document{"machines": rows}); n != 1 {
		t.Errorf("the first run changed %d: %s", n, out)
	}
	if n, out := a.play("reconcile.yml", document{"machines": rows}); n != 0 {
		t.Errorf("the second run changed %d: %s", n, out)
	}
	for id, m := range was {
		want := maps.Clone(m.GetLabels())
		want["managed"] = "ansible"
		if is := a.s.Machine(id); !maps.Equal(is.GetLabels(), want) || !proto.Equal(is.GetSpec(), m.GetSpec()) {
			t.Errorf("%s is %v, was %v", id, is, m)
		}
	}
}

// TestAnsibleTypingErrorsLeaveTheMachineInService has a machine in service worked on with an error in each option.
func TestAnsibleTypingErrorsLeaveTheMachineInService(t *testing.T) {
	t.Parallel()
	a := newAnsible(t)
	image := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(image, rig.WholeDisk(2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := a.s.Ingot("image", "add", "debian-12", image); code != 0 {
		t.Fatal(out)
	}
	id := a.s.machine
	done := len(a.s.OperationsOf(id))
	for name, c := range map[string]struct {
		vars document
		want string
	}{
		"image":    {document{"image": "debain-12"}, "IMAGE_NOT_FOUND"},
		"plan":     {document{"plan": "repaev"}, "PLAN_NOT_FOUND"},
		"path":     {document{"path": "kexek"}, "value of path must be one of"},
		"mode":     {document{"action_wanted": "reboot", "mode": "gracefully"}, "value of mode must be one of"},
		"time-out": {document{"timeout_seconds": -5}, "timeout_seconds"},
		"hostname": {document{"seed": document{"hostname": "web 1"}}, "seed.hostname"},
		"key": {document{"seed": document{"ssh_authorized_keys": []string{"ssh-edd25519 AAAA"}}},
			"seed.ssh_authorized_keys"},
		"user-data": {document{"seed": document{"user_data": "cloud-config"}}, "seed.user_data"},
		"request":   {document{"request": "deploy 2"}, "request_id"},
	} {
		vars := document{"machine": id, "action_wanted": "reimage", "request": "typed", "image": "debian-12",
			"maintenance": true}
		maps.Copy(vars, c.vars)
		if vars["action_wanted"] == "reboot" {
			delete(vars, "image")
		}
		a.failed("operation.yml", vars, c.want)
		if m := a.s.Machine(id); m.GetStatus().GetPhase() != baremetalv1.MachineStatus_READY ||
			len(a.s.OperationsOf(id)) != done {
			t.Errorf("an error in %s: the machine is in %s, with %v", name, m.GetStatus().GetPhase(), a.s.OperationsOf(id))
		}
	}
	a.play("operation.yml", document{"machine": id, "action_wanted": "reimage", "request": "typed", "image": "debian-12",
		"maintenance": true})
}
