package maas_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/provider/maas"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
	"github.com/ingot-metal/ingot/internal/testkit/document"
)

// stages are the actions of the workflows' stages, in their order, and of what undoes them.
var stages = [][]string{
	{"create", "commission", "wait_ready", "set_storage_layout", "fabric_interfaces", "boot_interface"},
	{"deploy", "wait_deployed", "classify_failure", "recover_deploy", "hardware_sync", "wait_hardware_sync"},
	{"erase", "release", "power_off", "delete", "abort"},
}

// nobodys are the statuses of machines that have no owner.
var nobodys = []ms.Status{ms.New, ms.FailedCommissioning, ms.Missing, ms.Ready, ms.Retired}

// shown is a machine of ours as MAAS shows it in a status; nil where there is none.
func shown(row ms.Row) *maas.Machine {
	if row.Status < 0 {
		return nil
	}
	nic := maas.NIC{ID: 1, Tags: []string{"roce"}, Subnets: []int{1}, Links: []maas.Link{{Mode: "link_up", Subnet: 1}}}
	m := &maas.Machine{
		SystemID: "a", Status: row.Status, StatusName: row.Name, PowerType: "ipmi", BootDisk: maas.Disk{ID: 1},
		Layout: "blank", Boot: nic,
		NICs: []maas.NIC{nic}, HWSync: true, SyncEvery: time.Minute,
	}
	if !slices.Contains(nobodys, row.Status) {
		m.Owner, m.Annotations = "ingot", map[string]string{"ingot-machine": "m-1", "ingot-operation": "op-0"}
	}
	return m
}

// first returns the first step of an action for such a machine.
func first(action string, m *maas.Machine) string {
	n := maas.Decide(maas.Order{Action: action, Operation: "op-1", Machine: "m-1"}, maas.Seen{
		M: m, User: "ingot", Power: "on", P: maas.Progress{Settings: &maas.EraseSettings{}}, Now: time.Unix(1000, 0),
	})
	switch {
	case n.Err != nil:
		return strings.TrimPrefix(n.Err.Reason, "MAAS_")
	case n.Do != "":
		return "asks to " + strings.ReplaceAll(string(n.Do.Kind()), "_", " ")
	case n.Wait != "":
		return "waits"
	case n.Done:
		return "done"
	}
	return "unknown"
}

func tables() string {
	var b strings.Builder
	for _, list := range stages {
		fmt.Fprintf(&b, "| MAAS says | `%s` |\n|---|%s\n", strings.Join(list, "` | `"), strings.Repeat("---|", len(list)))
		for _, row := range append(ms.Table(), ms.Row{Name: "(no machine)", Status: -1}) {
			fmt.Fprintf(&b, "| %s |", row.Name)
			for _, action := range list {
				fmt.Fprintf(&b, " %s |", first(action, shown(row)))
			}
			b.WriteString("\n")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestDocumentShowsEveryStatusAtEveryStage: the page's entry for each status of MAAS at each stage is the step that is
// taken.
func TestDocumentShowsEveryStatusAtEveryStage(t *testing.T) {
	document.Check(
		t,
		"maas-statuses.md",
		"Statuses of MAAS",
		"What an action does first of a machine that is ours and that "+
			"MAAS shows in a status. It is done, it waits, it asks MAAS for something, or it ends\nwith the reason, to which "+
			"`MAAS_` belongs. [Workflow stages](workflow-stages.md) has the stages.\n\n"+tables(),
	)
}
