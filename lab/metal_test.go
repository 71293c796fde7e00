package lab_test

import (
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestMetalCycles: powered off, an empty disk, and one call; in the end the system that was asked for runs and has said
// so itself. Nothing secret has crossed the wire or been logged.
func TestMetalCycles(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	// The first one's firmware would install for ever, if it were let.
	t.Run("BIOS by Redfish, network first", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, nil)
		m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.Redfish, NetworkFirst: true})
		wire := s.capture()
		op := s.installs(m, "first")
		s.bootsFromDisk(m, op)
		s.keepsSecrets(wire())
	})
	t.Run("UEFI by IPMI", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, nil)
		s.installs(s.machine(metal.MachineConfig{Firmware: vm.UEFI, BMC: metal.IPMI}), "first")
	})
}

// installs does a whole cycle and holds what must be true of every one.
func (s *site) installs(m *metal.Machine, request string) *pb.Operation {
	s.Helper()
	s.maintain(m.Name())
	op := s.ended(s.reimage(m.Name(), request), nil)
	s.holdsInstalled(m, op)
	return op
}

// holdsInstalled: the evidence is of this image, and the machine reports the same. No command has written twice, and
// none after one that had verified its work. Only the disk is left to boot.
func (s *site) holdsInstalled(m *metal.Machine, op *pb.Operation) {
	s.Helper()
	s.succeeded(op)
	s.stages(op)
	digest := op.GetEvidence()["image_digest"]
	status := s.get(m.Name()).GetStatus()
	if digest == "" || status.GetOsImageDigest() != digest {
		s.Errorf("evidence %v, and the machine says %q", op.GetEvidence(), status.GetOsImageDigest())
	}
	if status.GetBootAssignment() != "disk" || status.GetUnresolvedCommandId() != "" {
		s.Errorf("the machine is left as %v", status)
	}
	s.holdsWrites(op, 1)
}

// holdsWrites: so many commands have written an image that they read back, and none was given after one that had.
func (s *site) holdsWrites(op *pb.Operation, verified int) {
	s.Helper()
	var writes []*pb.Command
	for _, c := range s.commands(op) {
		if c.GetKind() == "repave" {
			writes = append(writes, c)
		}
	}
	n := 0
	for _, c := range writes {
		for _, other := range writes {
			if c.GetOutcome() == "SUCCEEDED" && other.GetGrantedAt().AsTime().After(c.GetFinishedAt().AsTime()) {
				s.Errorf("%s was granted after %s had succeeded", other.GetCommandId(), c.GetCommandId())
			}
		}
		if c.GetOutcome() == "SUCCEEDED" {
			n++
		}
	}
	if n != verified {
		s.Errorf("%d commands have written and verified, want %d: %v", n, verified, writes)
	}
	s.holdsOnePass(op)
}

// bootsFromDisk restarts the machine, which asks the network first, and is sent on to its disk.
func (s *site) bootsFromDisk(m *metal.Machine, op *pb.Operation) {
	s.Helper()
	before := s.get(m.Name()).GetStatus().GetBootId()
	began := time.Now()
	if err := m.Reset(s.ctx); err != nil {
		s.Fatal(err)
	}
	testkit.Eventually(s.T, cycle, func() bool {
		now := s.get(m.Name()).GetStatus().GetBootId()
		return now != "" && now != before
	}, "machine does not come back from a reset")
	if _, ok := m.Said("Booting from ROM", began); !ok {
		s.Error("the machine's firmware did not try the network")
	}
	s.holdsWrites(op, 1)
	if digest := s.get(m.Name()).GetStatus().GetOsImageDigest(); digest != op.GetEvidence()["image_digest"] {
		s.Errorf("after a reset the machine runs %q", digest)
	}
}
