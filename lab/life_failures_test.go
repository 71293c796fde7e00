//go:build metal

package lab_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chassis"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestLifeThreeFailures: a disk that cannot be written fails three installations. The machine then waits for a person,
// and why names the disk; with a plan for its other disk it comes into service.
func TestLifeThreeFailures(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.machine(metal.MachineConfig{
		Firmware: vm.BIOS, BMC: metal.Redfish, Disks: []chassis.Disk{disk("sound", 2),
			{Serial: "worn", Bytes: 2 << 30, BadSector: badSector}},
	})
	s.installPlan("on-worn", "serial=worn")
	s.installPlan("on-sound", "serial=sound")
	id := m.Name()
	s.run("node", "update", id, "--plan", "on-worn")
	s.maintain(id)
	failures := 0
	for s.node(id).GetState() != pb.NodeState_NODE_STATE_INSTALL_FAILED {
		failures++
		if failures > 3 {
			t.Fatalf("the node is still %s", s.node(id).GetState())
		}
		s.failed(s.ended(s.reimage(id, fmt.Sprintf("try-%d", failures)), nil), "DISK_WRITE_ERROR")
	}
	n := s.node(id)
	if n.GetInstallAttempts() != 3 || !strings.Contains(n.GetLastInstallError(), "worn") {
		t.Errorf("after %d operations the node shows %d attempts and %q", failures, n.GetInstallAttempts(),
			n.GetLastInstallError())
	}
	s.namesTheDisk(id)
	s.refused("NODE_GUARD_FAILED", "node", "transition", id, "pending", "--force")
	s.goesOnWith(m, "on-sound")
}

// installPlan installs on one disk, and tries once.
func (s *site) installPlan(id, rule string) {
	s.Helper()
	_, err := s.api.Plans.CreatePlan(s.ctx, &pb.CreatePlanRequest{Plan: &pb.Plan{PlanId: id, Steps: []*pb.Step{
		{Name: "netboot", Kind: &pb.Step_Netboot{Netboot: &pb.SetNetboot{}}},
		{Name: "write", MaxRetries: -1, Kind: &pb.Step_Repave{Repave: &pb.RepaveImage{Disk: rule}}},
		{Name: "boot", Kind: &pb.Step_Reboot{Reboot: &pb.Reboot{}}},
	}}})
	if err != nil {
		s.Fatal(err)
	}
}

// namesTheDisk: the answer to why names the disk, and the remedy.
func (s *site) namesTheDisk(id string) {
	s.Helper()
	e := s.explain(id)
	out := s.run("why", id)
	s.Logf("why:\n%s", out)
	if e.GetReason() != "INSTALL_ATTEMPTS_EXHAUSTED" && e.GetReason() != "DISK_WRITE_ERROR" ||
		e.GetWaitsOn() != "operator" {
		s.Errorf("why says %s on %s", e.GetReason(), e.GetWaitsOn())
	}
	for _, word := range []string{"worn", "ingot node transition " + id} {
		if !strings.Contains(out, word) {
			s.Errorf("why does not say %q", word)
		}
	}
}

// goesOnWith sets another plan on the node and brings it into service.
func (s *site) goesOnWith(m *metal.Machine, plan string) {
	s.Helper()
	began := time.Now()
	id := m.Name()
	s.run("node", "update", id, "--plan", plan)
	s.run("node", "transition", id, "pending", "--force", "--comment", "the other disk is sound")
	if n := s.node(id); n.GetState() != pb.NodeState_NODE_STATE_PENDING || n.GetInstallAttempts() != 0 {
		s.Errorf("after the reset the node is %s with %d attempts", n.GetState(), n.GetInstallAttempts())
	}
	op := s.ended(s.reimage(id, "another-plan"), nil)
	s.holdsInstalled(m, op)
	if op.GetEvidence()["disk"] != "sound" {
		s.Errorf("evidence %v", op.GetEvidence())
	}
	s.holdsNode(id, pb.NodeState_NODE_STATE_INSTALLED)
	if e := s.explain(id); e.GetWaitsOn() != "operator" || !strings.Contains(e.GetSummary()+e.GetCause(), "verif") {
		s.Errorf("installed, and why says: on %s: %s", e.GetWaitsOn(), e.GetSummary())
	}
	s.run("node", "transition", id, "active", "--comment", "burn-in passed")
	s.holdsNode(id, pb.NodeState_NODE_STATE_ACTIVE)
	s.Logf("in service %.1f s after the new plan; the node went %s", time.Since(began).Seconds(), s.moves(id))
}
