package situation

import (
	"fmt"
	"strings"
	"time"
)

// String returns the situation in one line for a log: the states, and the names of the facts that hold.
func (s Situation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, step %d %s %s", s.Op.Phase, s.Op.CurrentStep, s.Step.Name, s.Step.State)
	if s.Op.WaitReason != "" {
		fmt.Fprintf(&b, ", %s", s.Op.WaitReason)
	}
	if c := s.Command; c != nil {
		fmt.Fprintf(&b, ", command %s %s %s of %s %s", c.ID, c.Kind, c.State, c.ExecutorRole, c.ExecutorID)
		if s.Past(c.Deadline) {
			b.WriteString(" past its deadline")
		}
	}
	if s.Boots != "" {
		fmt.Fprintf(&b, ", boots %s, arrived %q, strayed %q", s.Boots, s.Arrived().BootID, s.Strayed().BootID)
	}
	if h := s.Host; h != nil {
		fmt.Fprintf(&b, ", host %s boot %s live %t", h.AgentID, h.BootID, h.Live)
	}
	if i := s.Installer; i != nil {
		fmt.Fprintf(&b, ", installer %s boot %s", i.AgentID, i.BootID)
	}
	for _, fact := range factsOf(s) {
		if fact.holds {
			b.WriteString(", " + fact.name)
		}
	}
	fmt.Fprintf(&b, ", at %s", s.Now.UTC().Format(time.RFC3339Nano))
	return b.String()
}

type fact struct {
	name  string
	holds bool
}

func factsOf(s Situation) []fact {
	return []fact{
		{"over", s.Over},
		{"canceling", s.Canceling},
		{"settled", s.Settled},
		{"granted", s.Granted},
		{"claimed", s.Claimed},
		{"of the step", s.OfStep},
		{"turned back", s.TurnedBack},
		{"entering the installer", s.Entering},
		{"cycles power", s.CyclesPower},
		{"blocked", s.Blocked},
		{"forgets", s.Forgets},
		{"lacks a slot", s.LacksSlot},
		{"executor live", s.World.ExecutorLive},
		{"target live", s.World.TargetAgentLive},
		{"stale epoch", s.World.StaleEpoch},
		{"unfit", s.World.Unfit != nil},
		{"assignment served", s.World.Boot.Served()},
	}
}
