//go:build metal

package lab_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestMetalTPM: the first installation records the machine's TPM. After that, a box without a TPM is refused, and so is
// a second computer with the machine's MAC address, UUID and serial number. The machine itself is still installed.
func TestMetalTPM(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.Redfish, NetworkFirst: true, TPM: true})
	s.maintain(m.Name())
	op := s.ended(s.reimage(m.Name(), "first"), nil)
	s.succeeded(op)
	s.identified(op, m)
	s.requiredLevel()

	twin := s.machine(metal.MachineConfig{Name: "twin", TwinOf: m.Name(), Firmware: vm.BIOS, BMC: metal.NoBMC,
		NetworkFirst: true, TPM: true, Unknown: true})
	if twin.About().UUID != m.About().UUID || twin.About().MACs[0] != m.About().MACs[0] {
		t.Fatal("the twin is no twin")
	}
	if err := s.lab.Switch().Unplug(m.Port); err != nil {
		t.Fatal(err)
	}
	op = s.reimageBy(m.Name(), "second", "bmc")
	s.await(op, nil, "waits for the installer",
		func(op *pb.Operation) bool { return op.GetWaitReason() == "WAITING_FOR_INSTALLER" })
	s.power(m, bmc.ForceOff)
	if err := s.lab.Switch().Plug(m.Port); err != nil {
		t.Fatal(err)
	}
	s.refusesTwin(m, twin)
	s.power(twin, bmc.ForceOff)
	if status, problem := s.newRogueSeen(twin, m).ask(); status != http.StatusForbidden ||
		!strings.Contains(problem, "TPM_REQUIRED") {
		t.Errorf("a box without a TPM is answered %d: %s", status, problem)
	}
	s.power(m, bmc.PowerOn)
	op = s.ended(op, nil)
	s.succeeded(op)
	s.identified(op, m)
}

// identified holds what operation and machine say of how the installer proved its identity.
func (s *site) identified(op *pb.Operation, m *metal.Machine) {
	s.Helper()
	if e := op.GetEvidence(); e[evidence.IdentityLevel] != "tpm" || e[evidence.IdentityTrust] != "first-use" {
		s.Errorf("%s has the evidence %v", op.GetOperationId(), e)
	}
	st := s.get(m.Name()).GetStatus()
	if st.GetIdentityLevel() != "tpm" || st.GetTpm().GetTrust() != "first-use" ||
		len(st.GetTpm().GetEndorsementKey()) != 64 {
		s.Errorf("the machine shows %q, %v", st.GetIdentityLevel(), st.GetTpm())
	}
}

// requiredLevel: where the site requires a TPM, a machine without a recorded one is refused before anything starts.
func (s *site) requiredLevel() {
	s.Helper()
	_, err := s.api.Admin.RequireIdentity(s.ctx, &pb.RequireIdentityRequest{Site: metal.SiteName, Level: "tpm"})
	if err != nil {
		s.Fatal(err)
	}
	other := s.machine(metal.MachineConfig{Name: "plain", Firmware: vm.BIOS, BMC: metal.Redfish})
	s.maintain(other.Name())
	_, err = s.api.Machines.ReimageMachine(s.ctx, &pb.ReimageMachineRequest{MachineId: other.Name(), RequestId: "r",
		ImageRef: metal.TinyRef})
	if err == nil || !strings.Contains(err.Error(), "requires the identity level tpm") {
		s.Errorf("a reimage of a machine without a TPM: %v", err)
	}
}

// refusesTwin boots the twin in the machine's place, and sees that it gets nothing and is reported.
func (s *site) refusesTwin(m, twin *metal.Machine) {
	s.Helper()
	disk := filepath.Join(twin.Dir(), twin.Name()+"-d0.qcow2")
	before := s.content(disk)
	s.power(twin, bmc.PowerOn)
	testkit.Eventually(s.T, cycle, func() bool {
		said, err := twin.SerialLog()
		if err != nil {
			s.Fatal(err)
		}
		return strings.Contains(string(said), "reason=TPM_MISMATCH")
	}, "the twin is not refused")
	why, err := s.api.Machines.ExplainMachine(s.ctx, &pb.ExplainMachineRequest{MachineId: m.Name()})
	if err != nil {
		s.Fatal(err)
	}
	if !strings.Contains(why.String(), "TPM_MISMATCH") {
		s.Errorf("why says %s", why)
	}
	agents, err := s.api.Admin.ListAgents(s.ctx, &pb.ListAgentsRequest{Filter: "role=INSTALLER"})
	if err != nil {
		s.Fatal(err)
	}
	for _, a := range agents.GetAgents() {
		if a.GetConnected() {
			s.Errorf("installer %s has a session", a.GetAgentId())
		}
	}
	audit, err := s.api.Admin.ListAuditLog(s.ctx, &pb.ListAuditLogRequest{})
	if err != nil {
		s.Fatal(err)
	}
	if !strings.Contains(audit.String(), "REFUSE_INSTALLER") {
		s.Errorf("the audit log has %s", audit)
	}
	if !bytes.Equal(before, s.content(disk)) {
		s.Error("something was written to the twin's disk")
	}
}

func (s *site) content(path string) []byte {
	s.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	return data
}
