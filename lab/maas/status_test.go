package maas_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/provider/maas"
	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// TestMAASTakesWhatIsAsked: nothing is asked of a machine that MAAS would refuse in the machine's status, whatever the
// action and the status. What MAAS would refuse is refused before it is asked.
func TestMAASTakesWhatIsAsked(t *testing.T) {
	t.Parallel()
	for _, row := range ms.Table() {
		for _, action := range maas.Actions() {
			if !*long && (int(row.Status)+len(action))%3 != 0 {
				continue
			}
			t.Run(row.Name+"/"+action, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, flow{begin: of(row.Status, action)}, nil)
				r.run("op-1", action, nil)
				for _, q := range r.region.Requests("") {
					if !strings.HasPrefix(q.Op, "GET ") && q.Status >= http.StatusBadRequest {
						t.Errorf("%s is refused with %d:\n%s", q.Op, q.Status, strings.Join(r.trace, "\n"))
					}
				}
				r.hold()
				if len(r.wrong) > 0 {
					t.Error(strings.Join(r.trace, "\n"))
				}
			})
		}
	}
}

// of is a machine of ours in a status, in which nothing moves by itself.
func of(s ms.Status, action string) *maastest.Machine {
	m := &maastest.Machine{Status: s, BootMode: "link_up", Fabric: []string{"52:54:00:00:00:02"}, FabricMode: "link_up",
		Layout: "lvm"}
	if action != "boot_interface" {
		m.BootMode = "auto" // a stage before has seen to it
	}
	switch s {
	case ms.New, ms.FailedCommissioning, ms.Missing, ms.Ready, ms.Retired:
	default:
		m.Annotations = map[string]string{"ingot-machine": machineID, "ingot-operation": "op-0"}
	}
	if s == ms.Deployed {
		m.Series = "noble"
	}
	return m
}
