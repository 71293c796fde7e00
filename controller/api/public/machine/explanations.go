package machine

import (
	"maps"
	"sync"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

const (
	// explainedFor is how long an explanation stands of a machine that does not change. What its work says meanwhile,
	// such as how far it is, is so old at most.
	explainedFor = 5 * time.Second
	// mostKept bounds the explanations that are kept, and with them the memory: some 5 MB.
	mostKept = 1000
)

// explanations are those that were made last: many consoles ask about the same machines, and each answer takes some
// thirty statements.
type explanations struct {
	mu  sync.Mutex
	all map[string]explanation
}

type explanation struct {
	*baremetalv1.ExplainedMachine

	at time.Time
}

// of gives what is known of these machines, as they are, by machine_id. Nobody may change an answer.
func (e *explanations) of(machines []*baremetalv1.Machine, now time.Time) map[string]*baremetalv1.ExplainedMachine {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]*baremetalv1.ExplainedMachine{}
	for _, m := range machines {
		known, ok := e.all[m.GetMachineId()]
		if ok && now.Sub(known.at) < explainedFor && known.GetMachine().GetVersion() == m.GetVersion() {
			out[m.GetMachineId()] = known.ExplainedMachine
		}
	}
	return out
}

// keep keeps an explanation that was made of what was read at a time or later.
func (e *explanations) keep(one *baremetalv1.ExplainedMachine, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil || len(e.all) >= mostKept {
		kept := map[string]explanation{}
		maps.Copy(kept, e.all)
		maps.DeleteFunc(kept, func(_ string, x explanation) bool { return at.Sub(x.at) >= explainedFor })
		if len(kept) >= mostKept {
			clear(kept)
		}
		e.all = kept
	}
	e.all[one.GetMachine().GetMachineId()] = explanation{one, at}
}
