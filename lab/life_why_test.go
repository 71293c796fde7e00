//go:build metal

package lab_test

import (
	"path/filepath"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/chassis"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/vm"
)

// diskFault is a fault that the real installer meets on a real machine.
type diskFault struct {
	harness.Expected
	disks []chassis.Disk
	rule  string
}

var diskFaults = []diskFault{
	{harness.Expected{Fault: "two disks fit the rule", Reasons: []string{"DISK_RULE_NO_UNIQUE_MATCH"}, On: "operator",
		Says: []string{"left-disk", "right-disk"}},
		[]chassis.Disk{disk("left-disk", 2), disk("right-disk", 2)}, "size>=1GiB"},
	{harness.Expected{Fault: "no disk fits the rule", Reasons: []string{"DISK_RULE_NO_UNIQUE_MATCH"}, On: "operator",
		Says: []string{"serial=absent", "only-disk"}},
		[]chassis.Disk{disk("only-disk", 2)}, "serial=absent"},
	{harness.Expected{Fault: "the image is bigger than the disk", Reasons: []string{"IMAGE_TOO_LARGE"}, On: "operator",
		Says: []string{"disk"}},
		[]chassis.Disk{{Serial: "small-disk", Bytes: 64 << 20}}, ""},
	{harness.Expected{Fault: "the disk refuses a write",
		Reasons: []string{"DISK_WRITE_ERROR", "INSTALL_ATTEMPTS_EXHAUSTED"}, On: "operator", Says: []string{"worn-disk"}},
		[]chassis.Disk{{Serial: "worn-disk", Bytes: 2 << 30, BadSector: badSector}}, ""},
}

// TestLifeWhy: what goes wrong on the disk and on the way of the image has its name, and a write that goes well is
// called that.
func TestLifeWhy(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	all := &harness.Answers{}
	for _, f := range diskFaults {
		m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.Redfish, Disks: f.disks})
		s.installFails(all, m, f)
	}
	s.cutInMidWrite(all)
	s.damagedImage(all)
	all.Table(t)
}

// installFails tries once, and asks when it is over.
func (s *site) installFails(all *harness.Answers, m *metal.Machine, f diskFault) {
	s.Helper()
	plan := "plan-" + m.Name()
	s.installPlan(plan, f.rule)
	s.run("node", "update", m.Name(), "--plan", plan)
	s.maintain(m.Name())
	op := s.ended(s.reimage(m.Name(), "why"), nil)
	if op.GetPhase() != pb.Operation_FAILED {
		s.Errorf("%s: the fault did no harm: %v", f.Fault, op)
	}
	s.answered(all, m, f.Expected)
	s.power(m, bmc.ForceOff)
}

func (s *site) answered(all *harness.Answers, m *metal.Machine, x harness.Expected) {
	s.Helper()
	all.Ask(s.T, x, func() *pb.ExplainMachineResponse { return s.explain(m.Name()) })
}

// cutInMidWrite asks while a disk is being written, and again once the machine's cable has been pulled.
func (s *site) cutInMidWrite(all *harness.Answers) {
	s.Helper()
	m := s.slowMachine()
	s.maintain(m.Name())
	s.until(s.reimage(m.Name(), "cut"), "stage: write")
	s.answered(all, m, harness.Expected{Fault: "none: the disk is being written", Reasons: []string{""}, On: "agent",
		Says: []string{"image is being written"}})
	s.unplug(m)
	s.answered(all, m, harness.Expected{
		Fault: "the cable is pulled in the middle of the write", Reasons: []string{"OUTCOME_UNKNOWN", "INSTALLER_SILENT"},
		On:   "agent",
		Says: []string{"installer", "heard last"},
	})
	s.power(m, bmc.ForceOff)
}

// damagedImage flips a byte in the site's copy.
func (s *site) damagedImage(all *harness.Answers) {
	s.Helper()
	p, err := sharedMetal()
	if err != nil {
		s.Fatal(err)
	}
	if n := s.damage(filepath.Join(s.dir, "site"), p.files.Tiny.SHA256File); n == 0 {
		s.Fatal("the site has no copy")
	}
	m := s.machine(metal.MachineConfig{Firmware: vm.BIOS, BMC: metal.Redfish})
	s.installFails(all, m, diskFault{Expected: harness.Expected{
		Fault: "a wrong byte in the image", Reasons: []string{"IMAGE_DIGEST_MISMATCH", "IMAGE_UNAVAILABLE"}, On: "operator",
		Says: []string{"not those of the image"},
	}})
}
