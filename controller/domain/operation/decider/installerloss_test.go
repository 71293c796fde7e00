package decider_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// TestOldSystemComesBack: the machine was restarted before the installer had written anything, and starts what is on
// its disk.
func TestOldSystemComesBack(t *testing.T) {
	for name, boot := range map[string]string{"another boot": "boot-old-2",
		"a session that outlived its system": "boot-old"} {
		t.Run(name, func(t *testing.T) {
			m := newMetal(t, "bmc", realHost())
			first := m.toInstaller()
			m.granted(kind.Repave, first)
			m.without(first)
			m.hostComesBack(boot)
			m.now = m.now.Add(time.Second)
			m.look()
			c := m.command(m.firstWrite())
			if boot == "boot-old" {
				if c.State != operation.Granted {
					t.Fatalf("settled by a boot that came before the grant: %s", dump(c))
				}
				return
			}
			if c.State != operation.Done || c.Outcome != operation.OutcomeFailed || c.SettledBy != "old_system_booted" {
				t.Fatalf("the attempt is %s", dump(c))
			}
			m.now = m.op.WakeAt
			m.look()
			m.siteApplies()
			if l := m.latest(); l.Kind != kind.Power || m.op.Phase != operation.Running {
				t.Errorf("nothing follows: %s, %s", m.op.Phase, dump(l))
			}
		})
	}
}

// firstWrite is the id of the first command that an installer was given.
func (m *metal) firstWrite() string {
	for _, c := range m.commands {
		if c.Kind == kind.Repave {
			return c.ID
		}
	}
	m.t.Fatalf("no write")
	return ""
}

func (m *metal) hostComesBack(boot string) {
	for i := range m.world.Candidates {
		if c := &m.world.Candidates[i]; c.AgentID == oldHostID {
			c.Live, c.LastSeen, c.BootID = true, m.now, boot
		}
	}
}
