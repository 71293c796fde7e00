//go:build metal

package lab_test

import (
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chassis"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// badSector is in the EFI system partition, which the tiny image fills.
const badSector = 8192

// TestAFailedInstallAndItsPlainRetry is the failure example of the API's design with a disk that really refuses writes:
// the machine needs attention, a reboot changes nothing about that, and the next reimage, asked for plainly, brings it
// into service.
func TestAFailedInstallAndItsPlainRetry(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	s := newSite(t, nil)
	m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.Redfish, Disks: []chassis.Disk{
		{Serial: "sound", Bytes: 2 << 30}, {Serial: "worn", Bytes: 2 << 30, BadSector: badSector},
	}})
	id := m.Name()
	s.installDisk(id, "serial=worn")
	s.maintain(id)
	op := s.ended(s.reimage(id, "first"), nil)
	if op.GetPhase() != pb.Operation_FAILED || op.GetError().GetCode() != "INSTALL_ATTEMPTS_EXHAUSTED" ||
		op.GetError().GetDetails()["cause"] != "DISK_WRITE_ERROR" {
		t.Fatalf("on a worn disk: %s, %v", op.GetPhase(), op.GetError())
	}
	s.holdsState(id, pb.MachineStatus_MAINTENANCE, pb.MachineStatus_ATTENTION, "INSTALL_ATTEMPTS_EXHAUSTED")
	s.exit(id, "too-early")
	s.holdsState(id, pb.MachineStatus_READY, pb.MachineStatus_ATTENTION, "INSTALL_ATTEMPTS_EXHAUSTED")
	s.enter(id, "again")
	s.installDisk(id, "serial=sound") // the cause has been found and mended
	retry := s.ended(s.reimage(id, "retry-001"), nil)
	s.holdsInstalled(m, retry)
	s.holdsState(id, pb.MachineStatus_MAINTENANCE, pb.MachineStatus_MAINTENANCE_IDLE, "")
	s.exit(id, "done")
	s.holdsState(id, pb.MachineStatus_READY, pb.MachineStatus_IDLE, "")
	if st := s.get(id).GetStatus(); !st.GetSchedulable() || st.GetNodeState() != pb.NodeState_NODE_STATE_ACTIVE ||
		st.GetInstallAttempts() != 0 {
		t.Errorf("in the end: %v", st)
	}
}

func (s *site) enter(id, request string) {
	s.Helper()
	op, err := s.api.Machines.EnterMaintenance(s.ctx, &pb.EnterMaintenanceRequest{MachineId: id, RequestId: request})
	s.succeeded(s.ended(op, err))
}

func (s *site) exit(id, request string) {
	s.Helper()
	op, err := s.api.Machines.ExitMaintenance(s.ctx, &pb.ExitMaintenanceRequest{MachineId: id, RequestId: request})
	s.succeeded(s.ended(op, err))
}

// holdsState holds what a person reads first of a machine.
func (s *site) holdsState(
	id string, phase pb.MachineStatus_Phase, effective pb.MachineStatus_EffectiveState, reason string,
) {
	s.Helper()
	st := s.get(id).GetStatus()
	if st.GetPhase() != phase || st.GetEffectiveState() != effective || st.GetAttentionReason() != reason {
		s.Errorf("%s: phase %s, %s (%s: %s), want %s, %s (%s)", id, st.GetPhase(), st.GetEffectiveState(),
			st.GetAttentionReason(),
			st.GetAttentionMessage(), phase, effective, reason)
	}
}

func (s *site) installDisk(name, rule string) {
	s.Helper()
	m := s.get(name)
	m.Spec.InstallDisk = rule
	if _, err := s.api.Machines.UpdateMachine(s.ctx, &pb.UpdateMachineRequest{Machine: m}); err != nil {
		s.Fatal(err)
	}
}
