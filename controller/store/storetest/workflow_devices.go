package storetest

import (
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// WithAccelerator lets the machine's agent report an inventory with an accelerator beside a server's display chip.
func (r *LifeRig) WithAccelerator() {
	r.T.Helper()
	doc := `{"system": {"serial": "sn-1"}, "nics": [{"name": "eth0", "mac": "` + LifeMAC + `"}], "pci": [` +
		`{"address": "0000:03:00.0", "class": "030000", "vendor": "1a03"}, {"address": "0000:17:00.0", "class": "030200", "vendor": "10de"}]}`
	k := sessionstore.EventKey{AgentID: r.Agent.ID, StateID: "st-1", Seq: 1 << 62}
	if err := r.Store.Sessions.InventoryEvent(r.T.Context(), k, "m-1", "with an accelerator", []byte(doc), false,
		Now()); err != nil {
		r.T.Fatal(err)
	}
}

// Resets are the commands by which the workflow's attempt resets accelerators.
func (r *LifeRig) Resets(w *baremetalv1.Workflow) int {
	r.T.Helper()
	list, err := r.Store.OperationQueries.ListCommands(r.T.Context(),
		operationquery.CommandFilter{OperationID: w.GetOperationId(), Limit: 100})
	if err != nil {
		r.T.Fatal(err)
	}
	n := 0
	for _, c := range list {
		if kind.Of(kind.Kind(c.GetKind())).Evidence == evidence.DevicesReset {
			n++
		}
	}
	return n
}
