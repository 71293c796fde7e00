package maas

import (
	"slices"
	"strings"
)

// requestEvents are the types of the events that MAAS writes of our requests, in the transaction in which it acts.
var requestEvents = map[Verb][]string{
	Commission: {"User starting node commissioning"}, Deploy: {"User starting deployment"},
	Release: {"User releasing node", "User erasing disk"},
}

// settle ends the doubt about requests for which MAAS had no time. MAAS answers so as well when what it does after its
// commit has failed. A request that has acted shows: in the machine's status, or in the event of the request.
func (p *Progress) settle(s Seen) {
	for v, a := range p.Asked {
		if !a.Doubtful {
			continue
		}
		asked := make(map[Verb]Ask, len(p.Asked))
		for k, other := range p.Asked {
			asked[k] = other
		}
		if s.M.Status != a.Was || since(s, p.LastEvent, requestEvents[v]...) {
			a.Doubtful, a.Answered = false, true
			asked[v] = a
		} else {
			delete(asked, v) // it may be asked for again
		}
		p.Asked = asked
	}
}

// reverted reports whether MAAS has begun what was asked for, and has put the machine back because nothing could switch
// it (maas/maas, models/node.py, Node._start_bmc_unavailable).
func reverted(s Seen) bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool {
		return e.ID > s.P.LastEvent && e.Type == "Failed to query node's BMC" && strings.Contains(e.Description, "reverting")
	})
}

// putBack: what was asked for is over, and has changed nothing but the machine's power.
func putBack(s Seen) Next {
	return fail("MAAS_FAILED", true, "MAAS has put the machine back to %q: it could not switch it", s.M.StatusName)
}

// since reports whether one of the types of events was logged after an event.
func since(s Seen, last int, types ...string) bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool { return e.ID > last && slices.Contains(types, e.Type) })
}
