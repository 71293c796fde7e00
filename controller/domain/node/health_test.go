package node_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// TestEachHealthCheckFailsAlone: a fault fails the check for it, and only where that check is asked for.
func TestEachHealthCheckFailsAlone(t *testing.T) {
	healthy := node.Health{
		Live: true, Serial: "S1", MACs: []string{"02:00:00:00:00:01"}, Inventoried: true,
		Seen:     hwid.Facts{Serial: "s1", Board: "B1", Chassis: "C1"},
		SeenMACs: []string{"02:00:00:00:00:02", "02:00:00:00:00:01"},
	}
	for name, c := range map[string]struct {
		spoil func(h *node.Health)
		fails string
	}{
		"nothing":                         {func(*node.Health) {}, ""},
		"no session":                      {func(h *node.Health) { h.Live = false }, node.CheckReachable},
		"the provider's word":             {func(h *node.Health) { h.ProviderFault = "broken" }, node.CheckProvider},
		"no inventory":                    {func(h *node.Health) { h.Inventoried = false }, node.CheckInventory},
		"another serial number":           {func(h *node.Health) { h.Seen.Serial = "S2" }, node.CheckInventory},
		"another serial number, no MACs":  {func(h *node.Health) { h.Seen.Serial, h.MACs = "S2", nil }, node.CheckInventory},
		"the label of the chassis":        {func(h *node.Health) { h.Serial = "c1" }, ""},
		"the label of the board alone":    {func(h *node.Health) { h.Serial, h.Seen.Serial = "B1", "" }, ""},
		"a serial number not read":        {func(h *node.Health) { h.Seen = hwid.Facts{} }, node.CheckInventory},
		"a factory's text registered":     {func(h *node.Health) { h.Serial, h.Seen.Serial = "Default string", "S2" }, ""},
		"a MAC address that is not there": {func(h *node.Health) { h.SeenMACs = h.SeenMACs[:1] }, node.CheckInventory},
		"the same, no serial number":      {func(h *node.Health) { h.Serial, h.SeenMACs = "", nil }, node.CheckInventory},
		"no serial number registered":     {func(h *node.Health) { h.Serial, h.Seen.Serial = "", "S2" }, ""},
		"nothing registered":              {func(h *node.Health) { h.Serial, h.MACs, h.Inventoried = "", nil, false }, ""},
		"a simulated machine":             {func(h *node.Health) { h.Simulated, h.Seen.Serial = true, "S2" }, ""},
	} {
		h := healthy
		c.spoil(&h)
		got := node.Failing(node.Evaluate(node.Checks(), h))
		if c.fails == "" && len(got) > 0 || c.fails != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.fails+": ")) {
			t.Errorf("%s: fails %q, want %q", name, got, c.fails)
		}
		others := slices.DeleteFunc(node.Checks(), func(check string) bool { return check == c.fails })
		if got := node.Failing(node.Evaluate(others, h)); len(got) > 0 {
			t.Errorf("%s: fails %q, which nobody has asked for", name, got)
		}
	}
}
