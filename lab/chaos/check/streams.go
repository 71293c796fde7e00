package check

import (
	"maps"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// events: 1, 2, 3 … of each operation, once, with phases that only go forward, up to the phase that it ended in.
func (j *judge) events() {
	last := map[string]Event{}
	for _, e := range j.h.Events {
		before, known := last[e.Operation]
		switch {
		case e.Seq <= before.Seq && known:
			j.add(RuleEvents, e.Operation, "event %d (%s) came again after %d", e.Seq, e.Kind, before.Seq)
			continue
		case e.Seq != before.Seq+1:
			j.add(RuleEvents, e.Operation, "event %d (%s) came after %d: some are missing", e.Seq, e.Kind, before.Seq)
		}
		if phase(e.Phase) < phase(before.Phase) || phase(before.Phase) >= baremetalv1.Operation_SUCCEEDED &&
			e.Phase != before.Phase {
			j.add(RulePhases, e.Operation, "went from %s to %s at event %d", before.Phase, e.Phase, e.Seq)
		}
		last[e.Operation] = e
	}
	for id, o := range j.operations {
		if e := last[id]; e.Phase != o.GetPhase().String() {
			j.add(RuleEvents, id, "it is %s, and the last event that came said %q (%d)", o.GetPhase(), e.Phase, e.Seq)
		}
	}
}

func phase(name string) baremetalv1.Operation_Phase {
	return baremetalv1.Operation_Phase(baremetalv1.Operation_Phase_value[name])
}

// owners: each epoch of an agent belongs to one session with one controller, and an agent's epochs grow.
func (j *judge) owners() {
	type epoch struct {
		agent string
		n     int64
	}
	owner := map[epoch]Session{}
	newest := map[string]int64{}
	for _, s := range j.h.Sessions {
		k := epoch{s.Agent, s.Epoch}
		if o, ok := owner[k]; ok && (o.Session != s.Session || o.Controller != s.Controller && o.ByAgent && s.ByAgent) {
			j.add(RuleOwner, s.Agent, "epoch %d is session %s of %s and session %s of %s", s.Epoch, o.Session, o.Controller,
				s.Session, s.Controller)
		}
		if _, ok := owner[k]; !ok || s.ByAgent {
			owner[k] = s // a controller's log does not name itself
		}
		if !s.ByAgent {
			continue
		}
		if s.Epoch <= newest[s.Agent] {
			j.add(RuleOwner, s.Agent, "epoch %d was opened after epoch %d", s.Epoch, newest[s.Agent])
		}
		newest[s.Agent] = s.Epoch
	}
}

// cursor: who follows the cursor has seen every machine as it is in the end, and with it the end of every operation.
func (j *judge) cursor() {
	last := map[string]Sighting{}
	for _, s := range j.h.Sightings {
		if s.Version < last[s.Machine].Version {
			j.add(RuleCursor, s.Machine, "version %d was read after version %d", s.Version, last[s.Machine].Version)
		}
		last[s.Machine] = s
	}
	for _, m := range j.h.Machines {
		s := last[m.GetMachineId()]
		if s.Version != m.GetVersion() || s.Active != m.GetStatus().GetActiveOperationId() {
			j.add(RuleCursor, m.GetMachineId(),
				"it is version %d with operation %q; the reader has version %d with operation %q",
				m.GetVersion(), m.GetStatus().GetActiveOperationId(), s.Version, s.Active)
		}
	}
}

// LogsComplete reports whether no line is missing or there twice.
func LogsComplete(h History) bool {
	j := newJudge(h)
	j.logs()
	return len(j.found) == 0
}

// logs: the chunks of an operation are numbered without gaps. The line that an agent writes before it asks for a reboot
// arrives once for each. An agent without room may lose a line, and logs that. A line that is not delivered yet when
// its agent is copied may arrive from both.
func (j *judge) logs() {
	lines := map[string][]string{}
	next := map[string]int64{}
	for _, l := range j.h.Logs {
		next[l.Operation]++
		if l.Seq != next[l.Operation] {
			j.add(RuleLogs, l.Operation, "chunk %d came as number %d", l.Seq, next[l.Operation])
		}
		lines[l.Operation] = append(lines[l.Operation], l.Text)
	}
	forgets := slices.ContainsFunc(j.h.Faults, func(f Fault) bool { return f.Forgets })
	copies := 0
	for _, f := range j.h.Faults {
		if f.Kind == "clone-agent" && f.Took {
			copies++
		}
	}
	missing := 0
	lost := func(n int) bool { return n == 0 && !forgets && missing > j.h.Header.Lost }
	for _, id := range j.repaved() {
		n := strings.Count(strings.Join(lines[id], ""), "writing image ")
		if n == 0 {
			missing++
		}
		if lost(n) {
			j.add(RuleLogs, id, "the line of the agent before it writes the disk is not there")
		}
	}
	for _, e := range j.h.Effects {
		if e.Stage != sim.StageAsked || e.Kind != sim.KindReboot || e.BootID == "" || j.operations[e.OperationID] == nil {
			continue
		}
		n := 0
		for _, text := range lines[e.OperationID] {
			n += strings.Count(text, "boot id before: "+e.BootID)
		}
		if n == 0 {
			missing++
		}
		if n > 1+copies || lost(n) {
			j.add(RuleLogs, e.OperationID, "the line of the agent before the reboot of %s from %s is there %d times",
				e.CommandID, e.BootID, n)
		}
	}
}

// repaved returns the operations of the run in which a disk was written.
func (j *judge) repaved() []string {
	found := map[string]bool{}
	for _, e := range j.h.Effects {
		if e.Kind == sim.KindRepave && e.Stage == sim.StageEffect && j.operations[e.OperationID] != nil {
			found[e.OperationID] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
