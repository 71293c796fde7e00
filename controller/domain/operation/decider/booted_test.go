package decider_test

import (
	"slices"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// TestBootTableIsWhole: every kind of command that boots something, and every system, has its evidence.
func TestBootTableIsWhole(t *testing.T) {
	systems := map[operation.System]int{}
	kinds := map[kind.Kind]int{}
	for _, r := range operation.BootTable {
		systems[r.Boots]++
		for _, k := range r.Kinds {
			kinds[k]++
		}
		if len(r.By) == 0 || r.Evidence == "" {
			t.Errorf("%s: nothing proves it", r.Boots)
		}
	}
	for _, k := range []kind.Kind{kind.Reboot, kind.Power, kind.Kexec} {
		if kinds[k] == 0 {
			t.Errorf("no row for %s", k)
		}
	}
	for s, n := range systems {
		if n != 1 {
			t.Errorf("%d rows for %s", n, s)
		}
	}
}

// comesBack opens a session of the machine's old system.
func (m *metal) comesBack(boot string) {
	m.t.Helper()
	m.hostComesBack(boot)
	m.world.TargetAgentID, m.world.TargetBootID, m.world.TargetAgentLive = oldHostID, boot, true
	m.do(operation.SessionOpened{AgentID: oldHostID, StateID: "s-old", BootID: boot, OfTarget: true})
}

// TestKexecThatComesBackInTheOldSystemIsNoSuccess: whatever brings the machine's own agent back under another boot id,
// a session or its claim, the way into the installer has failed, and the next one is gone, or the operation ends with
// the reason.
func TestKexecThatComesBackInTheOldSystemIsNoSuccess(t *testing.T) {
	claim := func(m *metal) {
		i := slices.IndexFunc(m.commands, func(c *operation.Command) bool { return c.Kind == kind.Kexec })
		m.stored.result(m.commands[i], operation.OutcomeSucceeded,
			map[string]string{evidence.BootIDBefore: "boot-old", evidence.BootIDAfter: "boot-old-2"})
	}
	for name, tell := range map[string]func(m *metal){
		"by its session": func(m *metal) { m.comesBack("boot-old-2") },
		"by its claim":   claim,
		"by both":        func(m *metal) { m.comesBack("boot-old-2"); claim(m) },
		"by what is read later": func(m *metal) {
			m.hostComesBack("boot-old-2")
			m.look()
		},
	} {
		for path, next := range map[string]kind.Kind{"auto": kind.Power, "kexec": ""} {
			t.Run(name+" "+path, func(t *testing.T) {
				m := newMetal(t, path, realHost("kexec"))
				m.op.Steps[1].MaxRetries = 0
				m.look()
				m.siteApplies()
				c := m.granted(kind.Kexec, oldHostID)
				tell(m)
				c = m.command(c.ID)
				if c.State != operation.Done || c.Outcome != operation.OutcomeFailed || c.Reason != "WRONG_SYSTEM_BOOTED" {
					t.Fatalf("the kexec is %s", dump(c))
				}
				if next == "" {
					m.ends(operation.Failed, "WRONG_SYSTEM_BOOTED")
					return
				}
				m.granted(next, siteID)
			})
		}
	}
}

// TestKexecGoesOnInTheInstaller: its session alone makes the kexec a success, and says which system it was.
func TestKexecGoesOnInTheInstaller(t *testing.T) {
	m := newMetal(t, "kexec", realHost("kexec"))
	m.look()
	m.siteApplies()
	c := m.granted(kind.Kexec, oldHostID)
	m.comesBack("boot-old") // a new session of the boot that is still running
	if c = m.command(c.ID); c.State != operation.Granted {
		t.Fatalf("settled by a session of the same boot: %s", dump(c))
	}
	inst := m.installerComes()
	if c = m.command(c.ID); c.Outcome != operation.OutcomeSucceeded || c.SettledBy != "installer_session" {
		t.Fatalf("the kexec is %s", dump(c))
	}
	m.granted(kind.Repave, inst)
}

// TestPowerCycleThatComesBackInTheOldSystem: the switch did what it was told, and the machine started its disk; nobody
// waits for an installer any more, and the reason is the true one.
func TestPowerCycleThatComesBackInTheOldSystem(t *testing.T) {
	m := newMetal(t, "bmc", realHost())
	m.op.Steps[1].MaxRetries = 0
	m.look()
	m.siteApplies()
	m.granted(kind.Power, siteID)
	m.without(oldHostID)
	m.result(operation.OutcomeSucceeded, "", false, nil)
	if m.op.WaitReason != operation.WaitInstaller {
		t.Fatalf("it waits for %s", m.op.WaitReason)
	}
	m.comesBack("boot-old-2")
	m.ends(operation.Failed, "WRONG_SYSTEM_BOOTED")
}

// newNetboot is a machine that is to boot the rescue system of its site once.
func newNetboot(t tb) *metal {
	m := newMetal(t, "", realHost("netboot"))
	m.op.Type = fleet.Netboot
	m.op.Steps = []operation.Step{
		{Name: "netboot", Kind: kind.Netboot, State: operation.StepWaiting, Timeout: stepTimeout},
		{Name: "reboot", Kind: kind.Reboot, State: operation.StepWaiting, Timeout: stepTimeout},
	}
	m.look()
	m.siteApplies()
	m.granted(kind.Netboot, oldHostID)
	m.result(operation.OutcomeSucceeded, "", false, map[string]string{evidence.BootNext: "Boot0003"})
	m.granted(kind.Reboot, oldHostID)
	return m
}

// TestNetbootThatComesBackInTheOldSystemIsNoSuccess: only the system that was to be booted from the network proves it.
func TestNetbootThatComesBackInTheOldSystemIsNoSuccess(t *testing.T) {
	m := newNetboot(t)
	m.comesBack("boot-old-2")
	m.result(operation.OutcomeSucceeded, "", false, map[string]string{evidence.BootIDBefore: "boot-old",
		evidence.BootIDAfter: "boot-old-2"})
	m.ends(operation.Failed, "WRONG_SYSTEM_BOOTED")
	if m.fence != "" {
		t.Error("a reboot that has been seen fences the machine")
	}
	m = newNetboot(t)
	rescue := m.installerComes()
	m.ends(operation.Succeeded, "")
	if e := m.op.Evidence; e[evidence.BootedSystem] != rescue || e[evidence.BootedBy] != operation.ByInstallerSession ||
		e[evidence.BootIDAfter] == "" {
		t.Errorf("evidence %v", e)
	}
}

// TestRebootIsProvenByTheSameSystemAlone: a netbooted system's boot id, or another agent's, is none of the machine's
// own.
func TestRebootIsProvenByTheSameSystemAlone(t *testing.T) {
	other := fleet.Candidate{AgentID: "a-other", Role: "host", StateID: "s-other", BootID: "boot-other", Live: true,
		LastSeen: t0}
	for name, c := range map[string]struct {
		happens func(m *metal)
		phase   operation.Phase
		code    string
	}{
		"the same system": {func(m *metal) { m.comesBack("boot-old-2") }, operation.Succeeded, ""},
		"a netbooted system of an earlier operation": {func(m *metal) {
			m.world.TargetBootID = "boot-rescue" // as the store has it from any session on the machine
			m.look()
		}, operation.Failed, "EVIDENCE_MISSING"},
		"another agent's system": {func(m *metal) {
			m.without(oldHostID)
			other.LastSeen = m.now
			m.world.Candidates = append(m.world.Candidates, other)
			m.world.TargetAgentID, m.world.TargetBootID = other.AgentID, other.BootID
			m.do(operation.SessionOpened{AgentID: other.AgentID, StateID: "s-other", BootID: other.BootID, OfTarget: true})
		}, operation.Failed, "WRONG_SYSTEM_BOOTED"},
		"another image under the same identity": {func(m *metal) {
			m.comesBack("boot-old-2")
		}, operation.Failed, "WRONG_SYSTEM_BOOTED"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMetal(t, "", realHost())
			m.op.Type = fleet.Reboot
			m.op.Steps = []operation.Step{{Name: "reboot", Kind: kind.Reboot, State: operation.StepWaiting,
				Timeout: stepTimeout, Mode: "bmc"}}
			m.world.Candidates[0].ImageDigest = digest
			m.look()
			m.granted(kind.Reboot, siteID)
			if name == "another image under the same identity" {
				m.world.Candidates[0].ImageDigest = "sha256:0dd"
			}
			m.result(operation.OutcomeSucceeded, "", false,
				map[string]string{evidence.PowerOffSeenAt: "x", evidence.PowerOnSeenAt: "y"})
			c.happens(m)
			if !operation.IsTerminal(m.op.Phase) {
				m.now = m.latest().Deadline
				m.look()
			}
			m.ends(c.phase, c.code)
			if e := m.op.Evidence; c.phase == operation.Succeeded &&
				(e[evidence.BootedSystem] != oldHostID || e[evidence.BootedBy] != operation.ByAgentIdentity) {
				t.Errorf("evidence %v", e)
			}
		})
	}
}

// TestASecondRebootAfterAnInstallationReboots: the system that was written has come up once; that does not prove the
// next reboot.
func TestASecondRebootAfterAnInstallationReboots(t *testing.T) {
	m := newMetal(t, "auto")
	m.op.Steps = append(m.op.Steps, operation.Step{Name: "again", Kind: kind.Reboot, State: operation.StepWaiting,
		Timeout: stepTimeout})
	inst := m.toInstaller()
	m.granted(kind.Repave, inst)
	m.result(operation.OutcomeSucceeded, "", false, wrote())
	m.siteApplies()
	m.granted(kind.Reboot, inst)
	m.newSystemComes(digest)
	m.granted(kind.Reboot, newHostID)
	i := slices.IndexFunc(m.world.Candidates, func(c fleet.Candidate) bool { return c.AgentID == newHostID })
	m.world.Candidates[i].BootID = "boot-new-2"
	m.world.TargetBootID = "boot-new-2"
	m.result(operation.OutcomeSucceeded, "", false, nil)
	m.ends(operation.Succeeded, "")
	if m.op.Evidence[evidence.BootIDBefore] != "boot-new" || m.op.Evidence[evidence.BootIDAfter] != "boot-new-2" {
		t.Errorf("evidence %v", m.op.Evidence)
	}
}

// TestAnOutlivedSessionSettlesNoWrite: the installer fell silent and its machine is fenced; a session of the boot from
// before the grant says nothing about it, another boot does.
func TestAnOutlivedSessionSettlesNoWrite(t *testing.T) {
	m := newMetal(t, "bmc", realHost())
	m.op.Steps[1].MaxRetries = 0
	inst := m.toInstaller()
	m.granted(kind.Repave, inst)
	m.without(inst)
	m.now = m.latest().Deadline
	m.look()
	m.ends(operation.Failed, "OUTCOME_UNKNOWN")
	c := m.command(m.fence)
	for b, want := range map[operation.Booted]bool{
		{AgentID: oldHostID, Role: "host", BootID: "boot-old"}:          false,
		{AgentID: oldHostID, Role: "host", BootID: "boot-old-2"}:        true,
		{AgentID: inst, Role: "installer", BootID: c.BootIDBefore}:      false,
		{AgentID: "a-next", Role: "installer", BootID: "boot-next"}:     true,
		{AgentID: "a-reinstalled", Role: "host", BootID: "boot-of-new"}: true,
	} {
		if got := operation.ProofSettles(c, b); got != want {
			t.Errorf("%+v settles: %t", b, got)
		}
	}
}
