package lab_test

import (
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestMetalCycles: powered off, an empty disk, and one call; in the end the system that was asked for runs and has said
// so itself.
func TestMetalCycles(t *testing.T) {
	if !asRoot(t) {
		return
	}
	for _, c := range []struct {
		firmware vm.Firmware
		bmc      metal.Protocol
	}{{vm.BIOS, metal.Redfish}, {vm.UEFI, metal.IPMI}} {
		t.Run(string(c.firmware)+" by "+string(c.bmc), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			m := s.machine(metal.MachineConfig{Firmware: c.firmware, BMC: c.bmc})
			s.installs(m, "first")
		})
	}
}

// installs does a whole cycle and holds what must be true of every one.
func (s *site) installs(m *metal.Machine, request string) *pb.Operation {
	s.Helper()
	s.maintain(m.Name())
	op := s.ended(s.reimage(m.Name(), request), nil)
	s.succeeded(op)
	s.stages(op)
	s.holdsImage(m, op)
	return op
}

// holdsImage: the evidence is of this image, the machine says the same, one command has written, and nothing is left
// that boots anything but the disk.
func (s *site) holdsImage(m *metal.Machine, op *pb.Operation) {
	s.Helper()
	p, err := sharedMetal()
	if err != nil {
		s.Fatal(err)
	}
	digest := op.GetEvidence()["image_digest"]
	status := s.get(m.Name()).GetStatus()
	if digest == "" || status.GetOsImageDigest() != digest {
		s.Errorf("evidence %v, and the machine says %q (image %s)", op.GetEvidence(), status.GetOsImageDigest(), p.files.Tiny.SHA256Raw)
	}
	if status.GetBootAssignment() != "disk" || status.GetUnresolvedCommandId() != "" || status.GetPowerState() == "off" {
		s.Errorf("the machine is left as %v", status)
	}
	writes := 0
	for _, c := range s.commands(op) {
		if c.GetKind() == "repave" && c.GetOutcome() == "SUCCEEDED" {
			writes++
		}
	}
	if writes != 1 {
		s.Errorf("%d commands have written: %v", writes, s.commands(op))
	}
}
