package convert

import (
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Seen is when the witnesses of a machine's conditions were heard last. The zero value has heard none.
type Seen struct {
	// Heartbeat is that of the machine's own agent; nil where it has none, or was not asked for.
	Heartbeat *time.Time
	// SiteAgent is the agent of the machine's site that was heard last, at SiteHeard; empty where there is none.
	SiteAgent string
	SiteHeard time.Time
}

// ObservedBySite reports whether the agent of the machine's site observes whether the machine is reachable.
func ObservedBySite(m *dbsqlc.Machine) bool { return m.AgentID == nil || m.Agentless }

// Observed returns when a condition was observed last, and by which agent. A known condition is as old as the last
// heartbeat of its witness: agents report changes. Both are zero for the controller's own records.
func Observed(c *dbsqlc.MachineCondition, m *dbsqlc.Machine, seen Seen) (at time.Time, by string) {
	if !c.Known {
		return pgtx.TimeVal(c.ObservedAt), c.ObservedBy
	}
	witness, _, _ := fleet.Aging(fleet.ConditionType(c.Type))
	switch {
	case witness == fleet.WitnessRecord || witness == "":
		return time.Time{}, ""
	case witness == fleet.WitnessSite || ObservedBySite(m):
		if seen.SiteAgent == "" {
			return time.Time{}, ""
		}
		return seen.SiteHeard, seen.SiteAgent
	case seen.Heartbeat == nil:
		return time.Time{}, ""
	case !c.Status && c.LastTransition.After(*seen.Heartbeat):
		// The controller has listened for longer, in vain.
		return c.LastTransition, *m.AgentID
	}
	return *seen.Heartbeat, *m.AgentID
}
