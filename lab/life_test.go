//go:build metal

package lab_test

import (
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// TestLife: an unknown machine boots from the network, is approved, installed, verified, and serves. It leaves for
// good, and comes in again as another one. An operator does it with the command line alone.
func TestLife(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.machine(metal.MachineConfig{Name: "stranger", Firmware: vm.BIOS, BMC: metal.Redfish, Unknown: true,
		NetworkFirst: true})
	first := s.comesIn(m, "rack-7-1")
	s.leaves(m, first)
	// The credentials of its BMC went with the record that alone had used them.
	s.credentials(metal.Password)
	second := s.comesIn(m, "rack-7-2")
	if a, b := s.get(first), s.get(second); a.GetDeletedAt() == nil || b.GetDeletedAt() != nil ||
		b.GetCreatedAt().AsTime().Before(a.GetDeletedAt().AsTime()) {
		t.Errorf("the first record is %v, the second %v", a, b)
	}
	s.holdsNode(first, pb.NodeState_NODE_STATE_DELETED)
}

// credentials stores a password of the rack's BMCs in the controller.
func (s *site) credentials(password string) {
	s.Helper()
	_, err := s.api.Admin.SetBMCCredentials(s.ctx, &pb.SetBMCCredentialsRequest{
		CredentialsRef: metal.CredentialsRef, Username: metal.Username, Password: password,
		AllowedEndpoints: []string{metal.BMCNetwork},
	})
	if err != nil {
		s.Fatal(err)
	}
}

// comesIn switches hardware on that is not in the inventory, and brings it into service under a name.
func (s *site) comesIn(m *metal.Machine, id string) string {
	s.Helper()
	began := time.Now()
	lap := func(what string) {
		s.Helper()
		s.Logf("%s: %s after %.1f s", id, what, time.Since(began).Seconds())
	}
	mac := m.About().MACs[0]
	s.power(m, bmc.PowerOn)
	s.discovered(mac)
	lap("discovered")
	if out := s.run("site", "discovered", metal.SiteName); !strings.Contains(out, mac) {
		s.Errorf("`ingot site discovered` does not show %s:\n%s", mac, out)
	}
	s.run("node", "approve", mac, "--site", metal.SiteName, "--machine", id, "--bmc-endpoint", m.Endpoint(),
		"--bmc-credentials", metal.CredentialsRef)
	s.holdsNode(id, pb.NodeState_NODE_STATE_PENDING)
	lap("approved")
	s.run("onboard", id, "--image", metal.TinyRef, "--enter-maintenance", "--yes")
	lap("installed, enrolled and verified")
	s.holdsNode(id, pb.NodeState_NODE_STATE_ACTIVE)
	if got := s.moves(id); got != "pending installing installed active" {
		s.Errorf("the node went %s", got)
	}
	w := s.workflowOf(id)
	if w.GetState() != pb.Workflow_COMPLETED {
		s.Errorf("the onboarding is %v", w)
	}
	s.holdsServes(id, s.operationOf(w))
	s.run("exit-maintenance", id)
	if e := s.explain(id); e.GetReason() != "" || e.GetWaitsOn() != "nobody" {
		s.Errorf("in service, and why says: %s on %s: %s", e.GetReason(), e.GetWaitsOn(), e.GetSummary())
	}
	lap("in service")
	return id
}

// holdsServes: the system that runs is the image that was written, once, and nothing is left that boots anything else.
func (s *site) holdsServes(id string, op *pb.Operation) {
	s.Helper()
	s.succeeded(op)
	s.stages(op)
	status := s.get(id).GetStatus()
	if digest := op.GetEvidence()["image_digest"]; digest == "" || status.GetOsImageDigest() != digest {
		s.Errorf("evidence %v, and the machine says %q", op.GetEvidence(), status.GetOsImageDigest())
	}
	if status.GetBootAssignment() != "disk" || status.GetUnresolvedCommandId() != "" {
		s.Errorf("the machine is left as %v", status)
	}
	s.holdsWrites(op, 1)
}

// leaves takes a machine out of the inventory for good.
func (s *site) leaves(m *metal.Machine, id string) {
	s.Helper()
	began := time.Now()
	if out := s.run("decommission", id, "--mode", "full-decommission", "--enter-maintenance",
		"--dry-run"); !strings.Contains(out, "lost") {
		s.Errorf("the dry run does not say that data are lost:\n%s", out)
	}
	s.holdsNode(id, pb.NodeState_NODE_STATE_ACTIVE)
	s.run("decommission", id, "--mode", "full-decommission", "--enter-maintenance", "--yes")
	s.Logf("%s: deleted after %.1f s", id, time.Since(began).Seconds())
	s.holdsGone(m, id)
}

// holdsGone: the record is a tombstone, the machine is off, its disk is empty, and nothing that it was given is worth
// anything.
func (s *site) holdsGone(m *metal.Machine, id string) {
	s.Helper()
	s.holdsNode(id, pb.NodeState_NODE_STATE_DELETED)
	if got := s.moves(id); !strings.HasSuffix(got, "draining retired removing deleted") {
		s.Errorf("the node went %s", got)
	}
	if p, err := m.PowerState(s.ctx); err != nil || p != bmc.Off {
		s.Fatalf("the machine is %s (%v)", p, err)
	}
	for _, at := range []int64{0, 1 << 20, 64 << 20, 1 << 30} {
		data, err := m.ReadDisk(s.ctx, 0, at, 1<<20)
		if err != nil {
			s.Fatal(err)
		}
		if strings.Trim(string(data), "\x00") != "" {
			s.Errorf("there are data on the disk at byte %d", at)
		}
	}
	agents, err := s.api.Admin.ListAgents(s.ctx, &pb.ListAgentsRequest{})
	if err != nil {
		s.Fatal(err)
	}
	for _, a := range agents.GetAgents() {
		for _, c := range a.GetCerts() {
			if a.GetMachineId() == id && c.GetRevokedAt() == nil {
				s.Errorf("certificate %s of agent %s is not revoked", c.GetFingerprint(), a.GetAgentId())
			}
		}
	}
	known, err := s.api.Admin.ListBMCCredentials(s.ctx, &pb.ListBMCCredentialsRequest{})
	if err != nil || len(known.GetCredentials()) != 0 {
		s.Errorf("BMC credentials are left: %v (%v)", known.GetCredentials(), err)
	}
	s.refused("NODE_IDENTITY_DELETED", "node", "transition", id, "offline")
}
