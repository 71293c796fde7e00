package fleet_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// An installer is asked for the operation that it was started for, and for no other.
func TestInstallerIsOfItsOperation(t *testing.T) {
	installer := func(id, operation string, live bool) fleet.Candidate {
		return fleet.Candidate{AgentID: id, Role: "installer", OperationID: operation, Live: live}
	}
	candidates := []fleet.Candidate{
		installer("first", "op-1", true), installer("second", "op-1", true), installer("gone", "op-1", false),
		installer("other", "op-2", true), host("host", true, 0),
	}
	for operation, want := range map[string]string{"op-1": "second", "op-2": "other", "op-3": "", "": ""} {
		got := ""
		if c := fleet.Installer(candidates, operation); c != nil {
			got = c.AgentID
		}
		if got != want {
			t.Errorf("operation %q: %q, want %q", operation, got, want)
		}
	}
}

// Through a BMC a machine is switched and told what to boot; it is not written to. Another provider's adapter does what
// it can.
func TestWhatGoesThroughAProvider(t *testing.T) {
	for _, c := range []struct {
		provider, capability string
		want                 bool
	}{
		{fleet.AgentProvider, "power", true}, {fleet.AgentProvider, "reboot", true}, {fleet.AgentProvider, "netboot", true},
		{fleet.AgentProvider, "repave", false}, {fleet.AgentProvider, "reconfig", false}, {"fake", "repave", true},
	} {
		candidates := []fleet.Candidate{site("away", false, "provider:"+c.provider), site("of another", true, "provider:x"),
			site("it", true, "provider:"+c.provider)}
		got := fleet.SiteFor(candidates, c.capability, c.provider)
		if (got != nil) != c.want || got != nil && got.AgentID != "it" {
			t.Errorf("%s by %s: %+v", c.capability, c.provider, got)
		}
	}
}
