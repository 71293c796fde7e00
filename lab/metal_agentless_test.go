//go:build metal

package lab_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestMetalStockAgentless: an image without a preparation for Ingot is installed without the agent, and the operation
// succeeds because its cloud-init phones home. `make lab-stock` runs it.
func TestMetalStockAgentless(t *testing.T) {
	if !asRoot(t) {
		return
	}
	image := os.Getenv(envStock)
	if image == "" {
		t.Fatalf("%s names no image: scripts/stock-image FILE.raw.zst", envStock)
	}
	s := newSite(t, nil)
	m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.Redfish, MemoryMB: 1024})
	if err := s.api.Upload(s.ctx, image, &pb.Image{ImageRef: "stock", Format: "raw.zst"}); err != nil {
		s.Fatal(err)
	}
	s.maintain(m.Name())
	op, err := s.api.Machines.ReimageMachine(s.ctx, &pb.ReimageMachineRequest{
		MachineId: m.Name(), RequestId: "agentless", ImageRef: "stock", TimeoutSeconds: int32(stockCycle.Seconds()),
		Agentless: true, Seed: &pb.SystemSeed{Hostname: "web-1", UserData: stockUserData},
	})
	op = s.endedWithin(stockCycle, op, err)
	if op.GetPhase() != pb.Operation_SUCCEEDED {
		s.Fatalf("operation: %v", op)
	}
	s.holdsPhoneHome(op)
	s.holdsNoAgent(m, op)
	s.holdsSecretIsOver(op)
	s.holdsReboot(m)
}

// holdsReboot: a reboot is done by the machine's BMC, and proven by its power and the answer of its system.
func (s *site) holdsReboot(m *metal.Machine) {
	s.Helper()
	op, err := s.api.Machines.RebootMachine(s.ctx, &pb.RebootMachineRequest{
		MachineId: m.Name(), RequestId: "reboot", TimeoutSeconds: int32(stockCycle.Seconds()),
	})
	op = s.endedWithin(stockCycle, op, err)
	e := op.GetEvidence()
	s.Logf("reboot: %v", e)
	if op.GetPhase() != pb.Operation_SUCCEEDED || e[evidence.BootedBy] != "probe" ||
		e[evidence.ProbeAnsweredBy] != "open" {
		s.Errorf("operation: %v", op)
	}
	off, err := time.Parse(time.RFC3339Nano, e[evidence.PowerOffSeenAt])
	on, err2 := time.Parse(time.RFC3339Nano, e[evidence.PowerOnSeenAt])
	up, err3 := time.Parse(time.RFC3339Nano, e[evidence.ProbeAnsweredAt])
	if err := errors.Join(err, err2, err3); err != nil || !off.Before(on) || !on.Before(up) {
		s.Errorf("off %v, on %v, up %v: %v", off, on, up, err)
	}
}

// holdsPhoneHome: the evidence is what the system said of itself, and where it called from.
func (s *site) holdsPhoneHome(op *pb.Operation) {
	s.Helper()
	e := op.GetEvidence()
	s.Logf("evidence: %v", e)
	for key, want := range map[string]string{
		evidence.BootedBy: "phone_home", evidence.InstanceID: "ingot-" + op.GetOperationId(),
		evidence.SystemHostname: "web-1", "state_partition": "",
	} {
		if e[key] != want {
			s.Errorf("evidence %s is %q, not %q", key, e[key], want)
		}
	}
	if _, err := time.Parse(time.RFC3339, e[evidence.PhonedHomeAt]); err != nil {
		s.Errorf("evidence %s: %v", evidence.PhonedHomeAt, err)
	}
	if _, err := netip.ParseAddr(e[evidence.PhonedHomeFrom]); err != nil {
		s.Errorf("evidence %s: %v", evidence.PhonedHomeFrom, err)
	}
	if !strings.HasPrefix(e[evidence.SystemSSHKey], "ssh-ed25519 ") {
		s.Errorf("evidence %s is %q", evidence.SystemSSHKey, e[evidence.SystemSSHKey])
	}
}

// holdsNoAgent: nothing of ours is on the disk but the seed, and the machine is known to have no agent.
func (s *site) holdsNoAgent(m *metal.Machine, op *pb.Operation) {
	s.Helper()
	var list []firstboot.Change
	if err := json.Unmarshal([]byte(op.GetEvidence()[evidence.AddedFiles]), &list); err != nil {
		s.Fatal(err)
	}
	for _, c := range list {
		if filepath.Dir(c.Path) != "/var/lib/cloud/seed/nocloud" && c.Path != "/etc/cloud/cloud.cfg.d/99_ingot.cfg" {
			s.Errorf("%s was added", c.Path)
		}
	}
	if len(list) != 5 {
		s.Errorf("%d files were added", len(list))
	}
	got, err := s.api.Machines.GetMachine(s.ctx, &pb.GetMachineRequest{MachineId: m.Name()})
	if err != nil {
		s.Fatal(err)
	}
	st := got.GetStatus()
	if !st.GetAgentless() || st.GetAgentId() != "" || st.GetProbedAddress() != op.GetEvidence()[evidence.PhonedHomeFrom] {
		s.Errorf("machine: %v", st)
	}
	for _, c := range st.GetConditions() {
		if (c.GetType() == "Reachable" || c.GetType() == "Provisioned") && !c.GetStatus() {
			s.Errorf("condition %v", c)
		}
	}
}

// holdsSecretIsOver: the boot server knows no secret any more.
func (s *site) holdsSecretIsOver(op *pb.Operation) {
	s.Helper()
	logs, err := s.lab.Logs()
	if err != nil {
		s.Fatal(err)
	}
	for name, text := range logs {
		if strings.Contains(text, "/phone-home/") {
			s.Errorf("the log of %s has the URL of a phone-home", name)
		}
	}
	if strings.Contains(op.String(), "/phone-home/") {
		s.Error("the operation has the URL of a phone-home")
	}
}
