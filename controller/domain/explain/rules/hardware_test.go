package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// TestHardwareIsNamed: what of the hardware is other since the command was granted, and what the agent may not read.
func TestHardwareIsNamed(t *testing.T) {
	t.Parallel()
	known := hwid.Facts{UUID: "4c4c4544-0031-3510-8052-b7c04f4e4b32", MACs: []string{"00:25:90:00:00:01"}}
	for name, c := range map[string]struct {
		now  hwid.Facts
		want string
	}{
		"a card": {hwid.Facts{UUID: known.UUID, MACs: []string{"00:25:90:00:00:02"}}, "network card 00:25:90:00:00:02 is new; " +
			"it counts as the same machine"},
		"a board": {hwid.Facts{UUID: "4c4c4544-0031-3510-8052-b7c04f4e4b33"}, "other hardware used the machine's identity"},
		"unread": {hwid.Facts{Unread: []string{"the system's UUID"}, MACs: known.MACs},
			"was not permitted to read the system's UUID"},
		"nothing": {known, ""},
	} {
		l := newLab(t)
		l.host()
		l.find(hostID).Hardware = known.Fingerprint()
		l.reboot().look().granted()
		l.find(hostID).Hardware = c.now.Fingerprint()
		e := l.explain()
		about := func(text string) bool {
			return strings.Contains(text, "hardware") || strings.Contains(text, "permitted")
		}
		if c.want == "" && slices.ContainsFunc(e.Cause.Facts, about) ||
			!strings.Contains(strings.Join(e.Cause.Facts, "\n"), c.want) || e.Rule == "" || e.WaitsOn == explain.OnNobody {
			t.Errorf("%s: %s, %q", name, e.Rule, e.Cause.Facts)
		}
	}
}
