package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Judge returns every violation in a history, in no order that means anything.
func Judge(h History) []Violation { return JudgeBut(h) }

// JudgeBut is Judge without some rules, for a history that lacks what these read.
func JudgeBut(h History, without ...string) []Violation {
	j := newJudge(h)
	if h.Header.Unfinished != "" {
		j.add(RuleEnds, fmt.Sprint("run ", h.Header.Seed), "%s", h.Header.Unfinished)
	}
	for _, m := range h.Machines {
		j.found = append(j.found, j.machine(m).Violations()...)
	}
	for _, of := range []struct {
		rule  string
		judge func()
	}{
		{RuleAccepted, j.accepted}, {RuleEvidence, j.evidence}, {RuleEvents, j.events}, {RuleOwner, j.owners},
		{RuleCursor, j.cursor}, {RuleLogs, j.logs}, {RuleAnswers, j.answers}, {RuleCopies, j.copies},
		{RuleTimes, j.times}, {RuleWindow, j.windows}, {RuleTimes, j.expiry}, {RuleBudget, j.budget}, {RuleRollout, j.rollouts},
		{RuleWebhooks, j.webhooks}, {RuleAudit, j.audit},
	} {
		if !slices.Contains(without, of.rule) {
			of.judge()
		}
	}
	return j.found
}

func newJudge(h History) *judge {
	j := &judge{h: h, operations: map[string]*baremetalv1.Operation{}}
	for _, o := range h.Operations {
		j.operations[o.GetOperationId()] = o
	}
	j.effects()
	return j
}

type judge struct {
	h          History
	operations map[string]*baremetalv1.Operation
	found      []Violation
}

func (j *judge) add(rule, subject, format string, args ...any) {
	j.found = append(j.found, Violation{Rule: rule, Subject: subject, What: fmt.Sprintf(format, args...)})
}

// effects leaves each record once: a process that was killed before it knew that its report was taken sends it again.
func (j *judge) effects() {
	type key struct {
		machine string
		seq     uint64
	}
	seen := map[key]sim.EffectRecord{}
	var once []sim.EffectRecord
	for _, e := range j.h.Effects {
		k := key{e.MachineID, e.Seq}
		first, again := seen[k]
		if !again {
			seen[k] = e
			once = append(once, e)
			continue
		}
		if first != e {
			j.add(RuleOnce, e.MachineID, "two effects under number %d: %v and %v", e.Seq, first, e)
		}
	}
	j.h.Effects = once
}

// stepped reports whether a clock was set while the history happened, or may have been set before: a controller's clock
// may stay a little off.
func (h *History) stepped() bool {
	return h.Header.Steppable ||
		slices.ContainsFunc(h.Faults, func(f Fault) bool { return strings.HasPrefix(f.Kind, "step-") })
}

// machine is the part of the history that is about one machine.
func (j *judge) machine(m Machine) MachineHistory {
	id := m.GetMachineId()
	h := MachineHistory{Machine: m.Machine, Pending: m.Pending, ClocksDiffer: j.h.stepped()}
	for _, o := range j.h.Operations {
		if o.GetMachineId() == id {
			h.Operations = append(h.Operations, o)
		}
	}
	for _, c := range j.h.Commands {
		if c.GetMachineId() == id {
			h.Commands = append(h.Commands, c)
		}
	}
	for _, e := range j.h.Effects {
		if e.MachineID == id || e.Target == id {
			h.Journal = append(h.Journal, e)
		}
	}
	slices.SortStableFunc(h.Operations, func(a, b *baremetalv1.Operation) int {
		return a.GetCreatedAt().AsTime().Compare(b.GetCreatedAt().AsTime())
	})
	slices.SortStableFunc(h.Commands, func(a, b *baremetalv1.Command) int {
		return cmp.Or(a.GetCreatedAt().AsTime().Compare(b.GetCreatedAt().AsTime()),
			cmp.Compare(a.GetAttempt(), b.GetAttempt()))
	})
	return h
}

// accepted: every operation in an answer to a client is there.
func (j *judge) accepted() {
	byRequest := map[[2]string]string{}
	for _, o := range j.h.Operations {
		k := [2]string{o.GetMachineId(), o.GetRequestId()}
		if other := byRequest[k]; other != "" {
			j.add(RuleAccepted, o.GetMachineId(), "request %s has operations %s and %s", o.GetRequestId(), other,
				o.GetOperationId())
		}
		byRequest[k] = o.GetOperationId()
	}
	for _, c := range j.h.Calls {
		if c.Method != Start || c.Outcome != OK {
			continue
		}
		if o := j.operations[c.Operation]; o == nil || o.GetRequestId() != c.Request || o.GetMachineId() != c.Machine {
			j.add(RuleAccepted, c.Machine, "request %s was answered with operation %s, which is %v", c.Request, c.Operation, o)
		}
	}
}

// audit: no history is at fault.
func (j *judge) audit() {
	for _, v := range j.h.Verdicts {
		if !v.GetOk() {
			j.add(RuleAudit, v.GetMachineId(), "entry %d: %s; differences %v", v.GetBrokenSeq(), v.GetBrokenWhy(),
				v.GetDifferences())
		}
	}
}

// evidence: the boot ids of a reboot that succeeded are those that the world saw.
func (j *judge) evidence() {
	for _, o := range j.h.Operations {
		if o.GetType() != baremetalv1.Operation_REBOOT || o.GetPhase() != baremetalv1.Operation_SUCCEEDED {
			continue
		}
		before, after := o.GetEvidence()["boot_id_before"], o.GetEvidence()["boot_id_after"]
		seen := slices.ContainsFunc(j.h.Effects, func(e sim.EffectRecord) bool {
			return e.Stage == sim.StageEffect && slices.Contains(restarts, e.Kind) && e.OperationID == o.GetOperationId() &&
				e.BootID == after
		})
		if after == "" || before == after || !seen {
			j.add(RuleEvidence, o.GetOperationId(),
				"the boot id is said to have gone from %q to %q, which no effect of it shows", before, after)
		}
	}
}
