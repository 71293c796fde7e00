package check_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// wideWorld is a history of a wide world in which nothing is wrong: two reimages under a budget of one, a rollout of
// two waves, and all webhooks.
func wideWorld() check.History {
	h := good()
	h.Header.Wide, h.Header.Slots = true, 1
	for i := range 2 {
		add(&h, fmt.Sprint("op-reimage-", i), fmt.Sprint("m-reimage-", i), "repave", 100+100*i)
		add(&h, fmt.Sprint("op-rolled-", i), fmt.Sprint("r-", i), "verify", 100+100*i)
	}
	h.Rollouts = []check.Rollout{{ID: "ro-1", State: "SUCCEEDED", AtOnce: 1, Failures: 1, Machines: []check.RolloutMachine{
		{Machine: "r-0", Wave: 1, State: "SUCCEEDED", Operation: "op-rolled-0"},
		{Machine: "r-1", Wave: 2, State: "SUCCEEDED", Operation: "op-rolled-1"},
	}}}
	for _, o := range h.Operations {
		for _, kind := range []string{"created", "started", "succeeded"} {
			h.Told = append(h.Told, check.Told{ID: kind + o.GetOperationId(), Type: "operation." + kind,
				Operation: o.GetOperationId(), Signed: true})
		}
	}
	return h
}

// add adds an operation of one command that succeeded, 80 ms long.
func add(h *check.History, id, machine, kind string, begun int) {
	h.Operations = append(h.Operations, &baremetalv1.Operation{OperationId: id, MachineId: machine, RequestId: id,
		Phase: baremetalv1.Operation_SUCCEEDED, CreatedAt: stamp(begun), FinishedAt: stamp(begun + 80)})
	c := proto.CloneOf(h.Commands[0])
	c.CommandId, c.OperationId, c.MachineId, c.Kind = "cmd-"+id, id, machine, kind
	c.GrantedAt, c.FinishedAt = stamp(begun+10), stamp(begun+70)
	h.Commands = append(h.Commands, c)
}

// fails ends the operation of this id as failed.
func fails(h *check.History, id string) {
	for _, o := range h.Operations {
		if o.GetOperationId() == id {
			o.Phase, o.Error = baremetalv1.Operation_FAILED, &baremetalv1.ErrorStatus{Code: "EXECUTION_FAILED"}
		}
	}
}

func moved(h *check.History, id string, to int) {
	for _, o := range h.Operations {
		if o.GetOperationId() == id {
			o.CreatedAt, o.FinishedAt = stamp(to), stamp(to+80)
		}
	}
	for _, c := range h.Commands {
		if c.GetOperationId() == id {
			c.GrantedAt = stamp(to + 10)
		}
	}
}

var wideBad = []struct {
	name, rule string
	change     func(*check.History)
}{
	{"two reimages under a budget of one", check.RuleBudget, func(h *check.History) { moved(h, "op-reimage-1", 120) }},
	{"a reimage beside a slot that a failed one holds", check.RuleBudget, func(h *check.History) {
		fails(h, "op-reimage-0")
		h.Freed = []check.Freed{{Machine: "m-reimage-0", At: at(250)}}
	}},
	{"too many machines of a rollout at once", check.RuleRollout, func(h *check.History) {
		moved(h, "op-rolled-1", 150)
		h.Rollouts[0].Machines[1].Wave = 1
	}},
	{"a wave before the end of the one before", check.RuleRollout, func(h *check.History) {
		moved(h, "op-rolled-1", 150)
		h.Rollouts[0].AtOnce = 2
	}},
	{"a machine behind a closed gate", check.RuleRollout, func(h *check.History) {
		fails(h, "op-rolled-0")
		h.Rollouts[0].State, h.Rollouts[0].Machines[0].State = "FAILED", "FAILED"
		moved(h, "op-rolled-1", 9000)
	}},
	{"a success with failures", check.RuleRollout, func(h *check.History) {
		fails(h, "op-rolled-1")
		h.Rollouts[0].Machines[1].State = "FAILED"
	}},
	{"another end than that of the operation", check.RuleRollout, func(h *check.History) { fails(h, "op-rolled-1") }},
	{"a machine that was left", check.RuleRollout, func(h *check.History) {
		h.Rollouts[0].Machines = append(h.Rollouts[0].Machines, check.RolloutMachine{Machine: "r-2", State: "PENDING"})
	}},
	{"a webhook that never came", check.RuleWebhooks, func(h *check.History) { h.Told = h.Told[1:] }},
	{"a webhook that came once and was not taken", check.RuleWebhooks, func(h *check.History) { h.Told[0].Failed = true }},
	{"a webhook without a signature", check.RuleWebhooks, func(h *check.History) { h.Told[0].Signed = false }},
	{"a webhook under two ids", check.RuleWebhooks, func(h *check.History) {
		again := h.Told[0]
		again.ID = "another"
		h.Told = append(h.Told, again)
	}},
}

func TestAWideWorld(t *testing.T) {
	t.Parallel()
	of := func(h check.History) (out []string) {
		for _, v := range check.Judge(h) {
			if slices.Contains(wideRules, v.Rule) {
				out = append(out, v.String())
			}
		}
		return out
	}
	if found := of(wideWorld()); len(found) > 0 {
		t.Error(found)
	}
	h := wideWorld()
	again := h.Told[0]
	h.Told[0].Failed = true
	if h.Told = append(h.Told, again); len(of(h)) > 0 {
		t.Errorf("a webhook that was taken at its second try: %v", of(h))
	}
	h = wideWorld()
	fails(&h, "op-reimage-0")
	h.Told[5].Type = "operation.failed"
	h.Freed = []check.Freed{{Machine: "m-reimage-0", At: at(190)}}
	for i := range h.Told {
		if h.Told[i].Operation == "op-reimage-0" && h.Told[i].Type == "operation.succeeded" {
			h.Told[i].Type = "operation.failed"
		}
	}
	if found := of(h); len(found) > 0 {
		t.Errorf("a slot that was freed in time: %v", found)
	}
}

var wideRules = []string{check.RuleBudget, check.RuleRollout, check.RuleWebhooks}

func TestEachRuleOfWideWorldsFindsItsOwn(t *testing.T) {
	t.Parallel()
	for _, b := range wideBad {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			h := wideWorld()
			b.change(&h)
			if !slices.ContainsFunc(check.Judge(h), func(v check.Violation) bool { return v.Rule == b.rule }) {
				t.Errorf("%s does not find it: %v", b.rule, check.Judge(h))
			}
		})
	}
}
