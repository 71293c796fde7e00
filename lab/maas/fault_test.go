package maas_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/provideraction"
	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	"github.com/ingot-metal/ingot/internal/failpoint"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// The faults that are not the region's own.
const (
	crashBefore maastest.Kind = "crash-before" // the agent dies before the request leaves
	crashAfter  maastest.Kind = "crash-after"  // it dies when the region has acted
	anotherUser maastest.Kind = "another-user" // another user has the machine by then
	sameKey     maastest.Kind = "same-key"     // something else that has our key has it
	sameNotes   maastest.Kind = "same-notes"   // another machine of ours has it
	locked      maastest.Kind = "locked"       // another user locks it
	silence     maastest.Kind = "silence"      // nothing answers from then on, until the command has ended
)

// ofRequests are the faults that any request may have, ofWrites those of requests that change something.
var (
	ofRequests = []maastest.Kind{
		maastest.Busy, maastest.Conflict, maastest.ErrorBefore, maastest.CutBefore, maastest.HangBefore, maastest.Nonsense,
		maastest.BadGateway, maastest.Refuse, maastest.Vanish, maastest.Restart, silence,
	}
	ofWrites = []maastest.Kind{
		maastest.BusyAfter, maastest.ErrorAfter, maastest.CutAfter, maastest.HangAfter, maastest.BadAfter, maastest.Revert,
		crashBefore, crashAfter,
	}
	// ofLooks happen before the machine is read, so that a reader can know.
	ofLooks = []maastest.Kind{anotherUser, sameKey, sameNotes, locked}
)

// fault is one fault: at the nth request of an op within the stepth command of a run. Both count from 1.
type fault struct {
	step int
	op   string
	nth  int
	kind maastest.Kind
	// write is the place of the request among those of the command that change something, from 1; 0 for others.
	write int
}

func (f fault) String() string {
	return fmt.Sprintf("%d/%s/%d/%s", f.step, strings.ReplaceAll(f.op, " ", "-"), f.nth, f.kind)
}

func nothing() {}

// arm makes it due, and returns what ends it when the command has ended.
func (f fault) arm(r *rig, scope *failpoint.Scope) func() {
	switch f.kind {
	case crashBefore:
		return scope.Set(provideraction.BeforeRequest.Name(), failpoint.Error().At(uint64(f.write)))
	case crashAfter:
		return scope.Set(executor.AfterEffect.Name(), failpoint.Error().At(uint64(f.write)))
	case anotherUser, sameKey, sameNotes, locked:
		f.await(r, f.nth)
		return nothing
	case silence:
		r.region.Fail(
			maastest.Fault{Op: f.op, Kind: maastest.CutAfter, Skip: f.nth - 1},
			maastest.Fault{Op: "*", Kind: maastest.BadGateway, Times: -1, After: f.op},
		)
		return r.region.Mend
	}
	r.region.Fail(maastest.Fault{Op: f.op, Kind: f.kind, Skip: f.nth - 1})
	return nothing
}

// await lets another client be quicker than the nth request from now.
func (f fault) await(r *rig, nth int) {
	r.region.Before(f.op, func() {
		if nth > 1 {
			f.await(r, nth-1)
			return
		}
		if m, ok := r.region.ByMAC(mac); ok {
			r.region.Change(m.SystemID, f.take)
		}
	})
}

// take applies another client's change to the machine.
func (f fault) take(m *maastest.Machine) {
	if f.kind == locked {
		m.Locked = true
		return
	}
	m.Halt()
	m.Status, m.Owner, m.Power, m.Annotations = ms.Deployed, maastest.User, "on", nil
	switch f.kind {
	case anotherUser:
		m.Owner = "eve"
	case sameNotes:
		m.Annotations = map[string]string{"ingot-machine": "m-2", "ingot-operation": "op-9"}
	}
}

// mend does the message's order to an operator: the machine's holder releases it, and it is unlocked.
func (r *rig) mend(message string) {
	m, ok := r.region.ByMAC(mac)
	if !ok {
		return
	}
	r.region.Change(m.SystemID, func(m *maastest.Machine) {
		switch {
		case m.Locked:
			m.Locked = false
			r.say("operator: unlocks it, after %q", message)
		case !ours(*m):
			m.Halt()
			m.Status, m.Owner, m.Power, m.Annotations, m.Series = ms.Ready, "", "off", nil, ""
			r.say("operator: has it released by whoever has it, after %q", message)
		}
	})
}

// cases lists the single faults of a flow, by the requests that it makes when nothing goes wrong.
func cases(steps [][]string) (out []fault) {
	for i, ops := range steps {
		seen, writes := map[string]int{}, 0
		for _, op := range ops {
			seen[op]++
			f := fault{step: i + 1, op: op, nth: seen[op]}
			kinds := ofRequests
			switch {
			case !strings.HasPrefix(op, "GET "):
				writes++
				f.write = writes
				kinds = slices.Concat(ofRequests, ofWrites)
			case op == "GET machines" && f.nth <= 3:
				kinds = ofLooks
				if f.nth == 1 {
					kinds = slices.Concat(ofRequests, ofLooks)
				}
			case f.nth > 1:
				continue
			}
			for _, f.kind = range kinds {
				out = append(out, f)
			}
		}
	}
	return out
}

// loses reports whether the fault is one of a request that loses data or a record.
func (f fault) loses() bool {
	return f.op == "POST deploy" || f.op == "POST release" || f.op == "DELETE machine"
}
