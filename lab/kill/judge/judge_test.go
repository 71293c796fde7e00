package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain/rules"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

// TestEveryRuleHasAJudgement holds that a new rule of why cannot pass because the judge does not know it.
func TestEveryRuleHasAJudgement(t *testing.T) {
	t.Parallel()
	for _, name := range rules.RuleNames() {
		if judgements[name] == nil {
			t.Errorf("rule %s has no judgement", name)
		}
	}
	for name := range judgements {
		if !slices.Contains(rules.RuleNames(), name) {
			t.Errorf("there is a judgement for rule %s, which does not exist", name)
		}
	}
}

var begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) *timestamppb.Timestamp {
	return timestamppb.New(begun.Add(time.Duration(seconds) * time.Second))
}

// record is a run with three reboots. One was done, one has an unknown outcome because its agent was killed, and one
// never reached an agent that was cut off.
func record() Record {
	operation := func(id, machine, request string, phase baremetalv1.Operation_Phase, code string) *baremetalv1.Operation {
		o := &baremetalv1.Operation{OperationId: id, MachineId: machine, RequestId: request, Phase: phase,
			Type: baremetalv1.Operation_REBOOT, CreatedAt: at(10), StartedAt: at(10), FinishedAt: at(40)}
		if code != "" {
			o.Error = &baremetalv1.ErrorStatus{Code: code}
		}
		return o
	}
	command := func(id, operation, machine, agent, state, outcome string) *baremetalv1.Command {
		return &baremetalv1.Command{CommandId: id, OperationId: operation, MachineId: machine, Step: "reboot", Attempt: 1,
			Kind: "reboot", State: state, Outcome: outcome, ExecutorAgentId: agent, CreatedAt: at(10), SentAt: at(11),
			GrantedAt: at(12), FinishedAt: at(39)}
	}
	done := operation("op-1", "m-1", "r-1", baremetalv1.Operation_SUCCEEDED, "")
	done.Evidence = map[string]string{"boot_id_before": "old", "boot_id_after": "new"}
	never := command("cmd-3", "op-3", "m-3", "a-3", "EXPIRED", "")
	never.GrantedAt = nil
	r := Record{
		Agents: map[string]string{"a-1": "agent-01", "a-2": "agent-02", "a-3": "agent-03"},
		World:  []World{{Machine: "m-1", BootID: "new", On: true}, {Machine: "m-2", On: true}, {Machine: "m-3", On: true}},
	}
	r.Header = check.Header{Begun: begun, At: begun.Add(100 * time.Second), Steppable: true}
	r.Operations = []*baremetalv1.Operation{done,
		operation("op-2", "m-2", "r-2", baremetalv1.Operation_FAILED, "OUTCOME_UNKNOWN"),
		operation("op-3", "m-3", "r-3", baremetalv1.Operation_FAILED, "AGENT_UNAVAILABLE")}
	r.Commands = []*baremetalv1.Command{command("cmd-1", "op-1", "m-1", "a-1", "DONE", "SUCCEEDED"),
		command("cmd-2", "op-2", "m-2", "a-2", "UNKNOWN", ""), never}
	r.Faults = []check.Fault{
		{Kind: "kill-agent", Target: "agent-02", Begin: 20 * time.Second, End: 22 * time.Second, Took: true},
		{Kind: "cut-agent", Target: "agent-03", Begin: 5 * time.Second, End: 35 * time.Second, Took: true}}
	r.Calls = []check.Call{
		{Method: check.Start, Machine: "m-1", Request: "r-1", Operation: "op-1", Outcome: check.OK}}
	r.Effects = []sim.EffectRecord{
		{MachineID: "m-1", Seq: 1, Stage: sim.StageAsked, Kind: sim.KindReboot, CommandID: "cmd-1", OperationID: "op-1"},
		{MachineID: "m-1", Seq: 2, Stage: sim.StageEffect, Kind: sim.KindReboot, CommandID: "cmd-1", OperationID: "op-1",
			BootID: "new"}}
	for i, o := range r.Operations {
		r.Events = append(r.Events, check.Event{Operation: o.GetOperationId(), Seq: 1, Phase: o.GetPhase().String()})
		m := &baremetalv1.Machine{MachineId: o.GetMachineId(), Status: &baremetalv1.MachineStatus{
			Phase: baremetalv1.MachineStatus_READY, AgentId: fmt.Sprintf("a-%d", i+1),
			EffectiveState: baremetalv1.MachineStatus_ATTENTION,
			Conditions:     []*baremetalv1.Condition{{Type: "NeedsIntervention", Status: true, Known: true}}}}
		r.Machines = append(r.Machines, check.Machine{Machine: m})
	}
	r.Machines[0].Status.EffectiveState = baremetalv1.MachineStatus_IDLE
	r.Machines[1].Status.UnresolvedCommandId = "cmd-2"
	r.Explanations = []Explanation{
		{At: 90 * time.Second, Machine: r.Machines[0].Machine, Answer: &baremetalv1.ExplainMachineResponse{
			MachineId: "m-1", Rule: "idle", Summary: "in service"}},
		{At: 90 * time.Second, Machine: r.Machines[1].Machine, Answer: &baremetalv1.ExplainMachineResponse{
			MachineId: "m-2", Rule: "fenced", Reason: "OUTCOME_UNKNOWN", OperationId: "op-2", Since: at(39),
			WaitsFor: "an operator who settles command cmd-2", Summary: "its outcome is UNKNOWN",
			Cause: "the start of command cmd-2 (reboot) was granted at 03:04:17, and its outcome is UNKNOWN"}},
		{At: 90 * time.Second, Machine: r.Machines[2].Machine, Answer: &baremetalv1.ExplainMachineResponse{
			MachineId: "m-3", Rule: "failed", Reason: "AGENT_UNAVAILABLE", OperationId: "op-3", Since: at(40),
			Summary: "REBOOT failed", Cause: "the start of the step was not granted before its time was up; nothing was started",
			Facts: []string{"command cmd-3 (reboot, attempt 1) is EXPIRED with a-3"}}},
	}
	return r
}

// failedBefore has the third operation end for want of an agent for its second attempt. The first was granted, and
// failed.
func failedBefore(r *Record) {
	x := r.Commands[2]
	x.State, x.Outcome, x.GrantedAt, x.Message = "DONE", "FAILED", at(12), "nothing was begun: it is off"
	a := r.Explanations[2].Answer
	a.Cause = "no agent could take the next attempt before the step's time was up"
	a.Facts = []string{"command cmd-3 (reboot, attempt 1) is DONE with a-3", "the executor says: " + x.GetMessage()}
}

// TestALieIsFound plants one thing that is wrong into a record of which all is true.
func TestALieIsFound(t *testing.T) {
	t.Parallel()
	if found := Judge(record()); len(found) > 0 {
		t.Fatalf("a true record is wrong: %v", found)
	}
	again := record()
	failedBefore(&again)
	if found := Judge(again); len(found) > 0 {
		t.Fatalf("a true record of a second attempt is wrong: %v", found)
	}
	why := func(r *Record, n int) *baremetalv1.ExplainMachineResponse { return r.Explanations[n].Answer }
	for name, c := range map[string]struct {
		plant func(*Record)
		rule  string
	}{
		"an acknowledged operation vanished": {func(r *Record) {
			r.Operations, r.Events, r.Commands = r.Operations[1:], r.Events[1:], r.Commands[1:]
		}, check.RuleAccepted},
		"a request has two operations": {func(r *Record) {
			o := proto.CloneOf(r.Operations[0])
			o.OperationId = "op-4"
			r.Operations = append(r.Operations, o)
		}, check.RuleAccepted},
		"an operation has not ended": {func(r *Record) {
			r.Operations[1].Phase = baremetalv1.Operation_RUNNING
		}, check.RuleEnds},
		"a command acted twice": {func(r *Record) {
			e := r.Effects[1]
			e.Seq++
			r.Effects = append(r.Effects, e)
		}, check.RuleOnce},
		"two attempts acted": {func(r *Record) {
			x := proto.CloneOf(r.Commands[0])
			x.CommandId, x.Attempt = "cmd-4", 2
			e := r.Effects[1]
			e.Seq, e.CommandID = 3, "cmd-4"
			r.Commands, r.Effects = append(r.Commands, x), append(r.Effects, e)
		}, check.RuleAttempt},
		"success without an effect": {func(r *Record) { r.Effects = nil }, check.RuleEvidence},
		"nothing was started, and it acted": {func(r *Record) {
			r.Effects = append(r.Effects, sim.EffectRecord{MachineID: "m-3", Seq: 1, Stage: sim.StageEffect,
				Kind: sim.KindReboot, CommandID: "cmd-3"})
		}, RuleWhy},
		"a granted command was done, and no agent is said to have taken it": {func(r *Record) {
			failedBefore(r)
			r.Commands[2].Outcome = "SUCCEEDED"
		}, RuleWhy},
		"an agent is accused that no fault has struck": {func(r *Record) { r.Faults = r.Faults[:1] }, RuleWhy},
		"an outcome is unknown for no reason":          {func(r *Record) { r.Faults = r.Faults[1:] }, RuleWhy},
		"a memory is said to be rolled back": {func(r *Record) {
			why(r, 1).Reason = "AGENT_STATE_ROLLED_BACK"
		}, RuleWhy},
		"a fence over another command": {func(r *Record) {
			why(r, 1).WaitsFor = "an operator who settles command cmd-1"
		}, RuleWhy},
		"a silence while the agent is connected": {func(r *Record) {
			why(r, 0).Rule, why(r, 0).Reason = "not-observed", "NOT_OBSERVED"
		}, RuleWhy},
		"a clock is blamed that no fault has stepped": {func(r *Record) {
			why(r, 2).Reason, why(r, 2).Cause = "COMMAND_EXPIRED", "nothing was done: its clock is far off"
		}, RuleWhy},
		"an agent is blamed whose connection was cut": {func(r *Record) {
			why(r, 2).Facts = append(why(r, 2).Facts, "the cause lies with agent a-3")
		}, RuleWhy},
		"a wrong fact": {func(r *Record) {
			why(r, 2).Facts[0] = "command cmd-3 (reboot, attempt 2) is EXPIRED with a-3"
		}, RuleWhy},
		"a moment that a stepped clock gave": {func(r *Record) { why(r, 2).Since = at(40 + 3600) }, RuleWhy},
		"a machine that needs a person is idle": {func(r *Record) {
			r.Machines[0].Status.EffectiveState = baremetalv1.MachineStatus_ATTENTION
		}, RuleWhy},
		"a cancel that no client asked for": {func(r *Record) {
			r.Operations[2].Phase, r.Events[2].Phase = baremetalv1.Operation_CANCELED, "CANCELED"
			why(r, 2).Rule, why(r, 2).Reason = "canceled", "CANCELED_BY_REQUEST"
		}, RuleWhy},
		"a silent site that no fault has struck": {func(r *Record) {
			r.Explanations = append(r.Explanations, Explanation{At: time.Minute, Live: true,
				Shared: &baremetalv1.SharedCause{Site: Site, Text: "site dallas is silent"}})
		}, RuleWhy},
		"a rule without a judgement":   {func(r *Record) { why(r, 2).Rule = "new-rule" }, RuleJudged},
		"a reason without a judgement": {func(r *Record) { why(r, 2).Reason = "NEW_REASON" }, RuleJudged},
		"a fact without a judgement": {func(r *Record) {
			why(r, 2).Facts = append(why(r, 2).Facts, "the moon is full")
		}, RuleJudged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := record()
			c.plant(&r)
			found := Judge(r)
			if !slices.ContainsFunc(found, func(v check.Violation) bool { return v.Rule == c.rule }) {
				var all []string
				for _, v := range found {
					all = append(all, v.String())
				}
				t.Errorf("no violation of %s: %s", c.rule, strings.Join(all, "\n"))
			}
		})
	}
}
