package check_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/check"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }

func stamp(ms int) *timestamppb.Timestamp { return timestamppb.New(at(ms)) }

// expiredAt is the message of an agent that refuses a command whose expiry it takes to be over.
func expiredAt(ms int) string { return "expired at " + at(ms).Format(time.RFC3339) }

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// good is a history in which nothing is wrong: a reboot that succeeded, and a second that was refused while it ran.
func good() check.History {
	status := &baremetalv1.MachineStatus{Phase: baremetalv1.MachineStatus_MAINTENANCE}
	return check.History{
		Header: check.Header{Seed: 7, Controllers: 1, Agents: 1, Begun: begin, At: at(2000)},
		Calls: []check.Call{
			{Method: check.Start, Kind: "reboot", Machine: "m-1", Request: "7-a", Begin: ms(10), End: ms(20), Outcome: check.OK,
				Operation: "op-1", Phase: "PENDING"},
			{Client: 1, Method: check.Start, Machine: "m-1", Request: "7-b", Begin: ms(30), End: ms(40), Outcome: check.Refused,
				Reason: "MACHINE_BUSY"},
			{Client: 1, Method: check.GetMachine, Machine: "m-1", Begin: ms(50), End: ms(60), Outcome: check.OK, Active: "op-1"},
			{Method: check.Start, Kind: "reboot", Machine: "m-1", Request: "7-a", Begin: ms(70), End: ms(80),
				Outcome: check.Unknown},
			{Method: check.Cancel, Machine: "m-1", Operation: "op-1", Begin: ms(480), End: ms(490), Outcome: check.Refused,
				Reason: "OPERATION_FINISHED"},
			{Method: check.Get, Machine: "m-1", Operation: "op-1", Begin: ms(500), End: ms(510), Outcome: check.OK,
				Phase: "SUCCEEDED"},
			{Method: check.GetMachine, Machine: "m-1", Begin: ms(520), End: ms(530), Outcome: check.OK},
			{Method: check.List, Machine: "m-1", Begin: ms(520), End: ms(530), Outcome: check.OK},
		},
		Effects: []sim.EffectRecord{
			{At: at(150), MachineID: "m-1", Seq: 1, Stage: sim.StageAsked, Kind: sim.KindReboot, CommandID: "cmd-1",
				OperationID: "op-1", BootID: "boot-1"},
			{At: at(300), MachineID: "m-1", Seq: 2, Stage: sim.StageEffect, Kind: sim.KindReboot, CommandID: "cmd-1",
				OperationID: "op-1", BootID: "boot-2"},
		},
		Events: []check.Event{
			{Operation: "op-1", Seq: 1, Kind: "created", Phase: "PENDING"},
			{Operation: "op-1", Seq: 2, Kind: "started", Phase: "RUNNING"},
			{Operation: "op-1", Seq: 3, Kind: "succeeded", Phase: "SUCCEEDED"},
		},
		Faults: []check.Fault{{Kind: "cut-agent", Target: "agent-1", Begin: ms(100), End: ms(200)}},
		Sightings: []check.Sighting{
			{Machine: "m-1", Version: 3, Active: "op-1"},
			{Machine: "m-1", Version: 4},
		},
		Sessions: []check.Session{
			{Agent: "a-1", Session: "s-1", Epoch: 1, Controller: "c-1", ByAgent: true},
			{Agent: "a-1", Session: "s-2", Epoch: 2, Controller: "c-2", ByAgent: true},
			{Agent: "a-1", Session: "s-2", Epoch: 2},
		},
		Grants: []check.Grant{{Command: "cmd-1", Agent: "a-1"}},
		Logs:   []check.LogLine{{Operation: "op-1", Seq: 1, Text: "rebooting (graceful), boot id before: boot-1\n"}},
		Operations: []*baremetalv1.Operation{{
			OperationId: "op-1", MachineId: "m-1", RequestId: "7-a", Type: baremetalv1.Operation_REBOOT,
			Phase:     baremetalv1.Operation_SUCCEEDED,
			CreatedAt: stamp(15), StartedAt: stamp(16), FinishedAt: stamp(400),
			Evidence: map[string]string{"boot_id_before": "boot-1", "boot_id_after": "boot-2"},
		}},
		Commands: []*baremetalv1.Command{{
			CommandId: "cmd-1", OperationId: "op-1", MachineId: "m-1", Step: "reboot", Attempt: 1, Kind: "reboot", State: "DONE",
			Outcome: "SUCCEEDED", CreatedAt: stamp(100), SentAt: stamp(100), GrantedAt: stamp(140), FinishedAt: stamp(390),
		}},
		Machines: []check.Machine{{Machine: &baremetalv1.Machine{MachineId: "m-1", Version: 4, Status: status}}},
	}
}

// second adds another command of the same step, after the first unless change alters it.
func second(h *check.History, change func(*baremetalv1.Command)) {
	c := proto.CloneOf(h.Commands[0])
	c.CommandId, c.Attempt, c.CreatedAt, c.GrantedAt, c.FinishedAt = "cmd-2", 2, stamp(391), stamp(392), stamp(393)
	change(c)
	h.Commands = append(h.Commands, c)
}

// canceled adds another operation of the machine, which was asked for before the first one, and ended without a
// command.
func canceled(h *check.History) *baremetalv1.Operation {
	o := proto.CloneOf(h.Operations[0])
	o.OperationId, o.RequestId, o.Phase, o.Error, o.Evidence = "op-0", "7-c", baremetalv1.Operation_CANCELED,
		&baremetalv1.ErrorStatus{Code: "CANCELED_BY_REQUEST"}, nil
	o.CreatedAt, o.StartedAt, o.FinishedAt = stamp(5), stamp(6), stamp(9)
	h.Operations = append([]*baremetalv1.Operation{o}, h.Operations...)
	h.Calls = append(h.Calls,
		check.Call{Client: 2, Method: check.Start, Kind: "reboot", Machine: "m-1", Request: "7-c", Begin: ms(5), End: ms(700),
			Outcome: check.OK, Operation: "op-0", Phase: "PENDING"},
		check.Call{Client: 2, Method: check.Cancel, Machine: "m-1", Operation: "op-0", Begin: ms(701), End: ms(710),
			Outcome: check.OK, Phase: "CANCELED"})
	h.Events = append(h.Events,
		check.Event{Operation: "op-0", Seq: 1, Kind: "created", Phase: "PENDING"},
		check.Event{Operation: "op-0", Seq: 2, Kind: "canceled", Phase: "CANCELED"})
	return o
}

// failed ends the operation and its command as not done, whatever the world shows.
func failed(h *check.History, reason string) {
	o := h.Operations[0]
	o.Phase, o.Error, o.Evidence = baremetalv1.Operation_FAILED, &baremetalv1.ErrorStatus{Code: reason}, nil
	h.Commands[0].Outcome = "FAILED"
	h.Events[2].Phase, h.Calls[5].Phase = "FAILED", "FAILED"
}

// repaved makes the command a repave that got as far as the stages.
func repaved(h *check.History, stages ...sim.Stage) {
	h.Operations[0].Type, h.Commands[0].Kind = baremetalv1.Operation_REIMAGE, "repave"
	h.Logs[0].Text = "writing image ubuntu-2204\n"
	h.Effects = nil
	for i, stage := range append([]sim.Stage{sim.StageAsked, sim.StageEffect}, stages...) {
		h.Effects = append(h.Effects, sim.EffectRecord{At: at(300 + i), MachineID: "m-1", Seq: uint64(i + 1), Stage: stage,
			Kind: sim.KindRepave, CommandID: "cmd-1", OperationID: "op-1"})
	}
}

// twice adds a second attempt of the step that has the effect of the first one again.
func twice(h *check.History) {
	second(h, func(c *baremetalv1.Command) { c.Outcome, c.SettledBy = "SUCCEEDED", "" })
	e := h.Effects[1]
	e.At, e.Seq, e.CommandID, e.BootID = at(392), 3, "cmd-2", "boot-3"
	h.Effects = append(h.Effects, e)
	h.Operations[0].Evidence["boot_id_after"] = "boot-3"
}

// sleptOver lets the machine sleep between its grant and its effects.
func sleptOver(h *check.History) {
	for i := range h.Effects {
		h.Effects[i].At = h.Effects[i].At.Add(ms(150))
	}
	h.Faults = []check.Fault{{Kind: "suspend-agent", Machine: "m-1", Begin: ms(180), End: ms(200),
		Asleep: 32 * time.Second, Took: true}}
	h.Operations[0].FinishedAt, h.Commands[0].FinishedAt = stamp(475), stamp(470)
}

// bad are histories that break one promise each.
var bad = []struct {
	name, rule string
	change     func(*check.History)
}{
	{"an effect twice", check.RuleOnce, func(h *check.History) {
		e := h.Effects[1]
		e.Seq, e.BootID = 3, "boot-3"
		h.Effects = append(h.Effects, e)
	}},
	{"two effects under one number", check.RuleOnce, func(h *check.History) {
		e := h.Effects[1]
		e.CommandID = "cmd-9"
		h.Effects = append(h.Effects, e)
	}},
	{"an effect without a grant", check.RuleGrant, func(h *check.History) { h.Commands[0].GrantedAt = nil }},
	{"an effect before its grant", check.RuleGrant, func(h *check.History) { h.Commands[0].GrantedAt = stamp(200) }},
	{"an effect after the result", check.RuleGrant, func(h *check.History) { h.Commands[0].FinishedAt = stamp(250) }},
	{"an effect of nobody's", check.RuleStranger, func(h *check.History) {
		h.Effects = append(h.Effects, sim.EffectRecord{At: at(350), MachineID: "m-1", Seq: 3, Stage: sim.StageEffect,
			Kind: sim.KindErase, CommandID: "cmd-9"})
	}},
	{"attempts that overlap", check.RuleOverlap, func(h *check.History) {
		h.Commands[0].Outcome = "FAILED"
		second(h, func(c *baremetalv1.Command) { c.CreatedAt = stamp(200) })
	}},
	{"an attempt after a success", check.RuleOverlap, func(h *check.History) { second(h, func(*baremetalv1.Command) {}) }},
	{"an attempt after an unknown outcome", check.RuleOverlap, func(h *check.History) {
		h.Commands[0].State = "UNKNOWN"
		second(h, func(*baremetalv1.Command) {})
	}},
	{"two operations at a time", check.RuleOneOperation, func(h *check.History) {
		o := proto.CloneOf(h.Operations[0])
		o.OperationId, o.RequestId, o.CreatedAt, o.StartedAt, o.Type = "op-2", "7-c", stamp(200), stamp(200),
			baremetalv1.Operation_REIMAGE
		h.Operations = append(h.Operations, o)
	}},
	{"an operation that waited beside another", check.RuleOneOperation, func(h *check.History) {
		o := canceled(h)
		o.StartedAt, o.CreatedAt, o.FinishedAt = nil, stamp(200), stamp(300)
	}},
	{"an operation without an end", check.RuleEnds, func(h *check.History) {
		h.Operations[0].Phase = baremetalv1.Operation_RUNNING
	}},
	{"a command without an end", check.RuleEnds, func(h *check.History) { h.Commands[0].State = "GRANTED" }},
	{"a machine that points to an operation", check.RuleEnds,
		func(h *check.History) { h.Machines[0].Status.ActiveOperationId = "op-1" }},
	{"a run without an end", check.RuleEnds, func(h *check.History) { h.Header.Unfinished = "m-1 does not come to rest" }},
	{"an unknown outcome without a fence", check.RuleFence, func(h *check.History) {
		h.Operations[0].Phase, h.Operations[0].Error = baremetalv1.Operation_FAILED,
			&baremetalv1.ErrorStatus{Code: "OUTCOME_UNKNOWN"}
		h.Commands[0].State = "UNKNOWN"
	}},
	{"a fence over nothing", check.RuleFence,
		func(h *check.History) { h.Machines[0].Status.UnresolvedCommandId = "cmd-1" }},
	{"a success without an effect", check.RuleEvidence, func(h *check.History) { h.Effects = h.Effects[:1] }},
	{"an effect of what was never started", check.RuleEvidence, func(h *check.History) {
		h.Operations[0].Phase, h.Operations[0].Error = baremetalv1.Operation_FAILED,
			&baremetalv1.ErrorStatus{Code: "GRANT_REFUSED"}
		h.Commands[0].Outcome = "REFUSED"
	}},
	{"a success with a wrong boot id", check.RuleEvidence,
		func(h *check.History) { h.Operations[0].Evidence["boot_id_after"] = "boot-7" }},
	{"a disk that was not written to its end", check.RuleEvidence, func(h *check.History) {
		h.Operations[0].Type, h.Commands[0].Kind = baremetalv1.Operation_REIMAGE, "repave"
		h.Effects = []sim.EffectRecord{{At: at(300), MachineID: "m-1", Seq: 1, Stage: sim.StageEffect, Kind: sim.KindRepave,
			CommandID: "cmd-1"}}
	}},
	{"a success without an effect that came late", check.RuleEvidence, func(h *check.History) {
		h.Operations[0].Phase, h.Operations[0].Error = baremetalv1.Operation_FAILED,
			&baremetalv1.ErrorStatus{Code: "OUTCOME_UNKNOWN"}
		h.Commands[0].SettledBy, h.Effects = "late_result", h.Effects[:1]
	}},
	{"a reboot that was answered FAILED after the memory was rolled back", check.RuleNotDone, func(h *check.History) {
		failed(h, "AGENT_STATE_ROLLED_BACK")
	}},
	{"a reboot that a late result denies", check.RuleNotDone, func(h *check.History) {
		failed(h, "OUTCOME_UNKNOWN")
		h.Commands[0].SettledBy = "late_result"
	}},
	{"a reboot that an operator denies", check.RuleNotDone, func(h *check.History) {
		failed(h, "OUTCOME_UNKNOWN")
		h.Commands[0].Outcome, h.Commands[0].SettledBy = "UNKNOWN", "operator:did_not_happen"
	}},
	{"a reboot that was cancelled and happened", check.RuleNotDone, func(h *check.History) {
		failed(h, "CANCELED_BY_REQUEST")
		h.Operations[0].Phase, h.Commands[0].State = baremetalv1.Operation_CANCELED, "CANCELED"
	}},
	{"a reboot that expired and happened", check.RuleNotDone, func(h *check.History) {
		failed(h, "COMMAND_EXPIRED")
		h.Commands[0].State = "EXPIRED"
	}},
	{"a disk that was written to its end and FAILED", check.RuleNotDone, func(h *check.History) {
		failed(h, "EXECUTION_FAILED")
		repaved(h, sim.StageVerified)
	}},
	{"an unknown end without an unresolved command", check.RuleNotDone, func(h *check.History) {
		failed(h, "OUTCOME_UNKNOWN")
		h.Effects = h.Effects[:1]
	}},
	{"an operation that FAILED over a reboot that is done", check.RuleNotDone, func(h *check.History) {
		failed(h, "EXECUTION_FAILED")
		h.Commands[0].Outcome = "SUCCEEDED"
	}},
	{"a second attempt that reboots again", check.RuleAttempt, func(h *check.History) {
		h.Commands[0].Outcome = "FAILED"
		twice(h)
	}},
	{"a second attempt after a proof", check.RuleAttempt, func(h *check.History) {
		h.Commands[0].Outcome, h.Commands[0].SettledBy = "UNKNOWN", "new_boot"
		twice(h)
	}},
	{"two processes with one identity", check.RuleCopies,
		func(h *check.History) { h.Header.Lingering = []string{"agent-1"} }},
	{"two machines with one identity", check.RuleCopies, func(h *check.History) {
		h.Faults = []check.Fault{{Kind: "elsewhere-agent", Target: "agent-1", Machine: "m-1", Took: true}}
	}},
	{"an end in the future", check.RuleTimes, func(h *check.History) { h.Operations[0].FinishedAt = stamp(3600_000) }},
	{"a grant in the past", check.RuleTimes, func(h *check.History) { h.Commands[0].GrantedAt = stamp(-3600_000) }},
	{"a command that expired too early", check.RuleTimes, func(h *check.History) {
		h.Commands[0].Outcome, h.Commands[0].Message, h.Commands[0].Deadline = "REFUSED", expiredAt(5000),
			stamp(5000)
	}},
	{"an effect on a grant that was slept over", check.RuleWindow, sleptOver},
	{"an operation that is gone", check.RuleAccepted, func(h *check.History) { h.Calls[0].Operation = "op-7" }},
	{"two operations for one request", check.RuleAccepted, func(h *check.History) {
		o := proto.CloneOf(h.Operations[0])
		o.OperationId, o.CreatedAt, o.FinishedAt = "op-2", stamp(500), stamp(600)
		h.Operations = append(h.Operations, o)
	}},
	{"an event that is lost", check.RuleEvents, func(h *check.History) { h.Events = slices.Delete(h.Events, 1, 2) }},
	{"the last event lost", check.RuleEvents, func(h *check.History) { h.Events = h.Events[:2] }},
	{"an event twice", check.RuleEvents, func(h *check.History) { h.Events = slices.Insert(h.Events, 1, h.Events[1]) }},
	{"a phase that goes back", check.RulePhases, func(h *check.History) {
		h.Events = append(h.Events, check.Event{Operation: "op-1", Seq: 4, Phase: "RUNNING"},
			check.Event{Operation: "op-1", Seq: 5, Phase: "SUCCEEDED"})
	}},
	{"an end that changes", check.RulePhases, func(h *check.History) {
		h.Events[1].Phase = "FAILED"
	}},
	{"an epoch with two owners", check.RuleOwner, func(h *check.History) { h.Sessions[2].Session = "s-9" }},
	{"an epoch with two controllers", check.RuleOwner, func(h *check.History) {
		h.Sessions = append(h.Sessions, check.Session{Agent: "a-1", Session: "s-2", Epoch: 2, Controller: "c-9",
			ByAgent: true})
	}},
	{"an epoch that goes back", check.RuleOwner, func(h *check.History) {
		h.Sessions = append(h.Sessions, check.Session{Agent: "a-1", Session: "s-1", Epoch: 1, Controller: "c-1",
			ByAgent: true})
	}},
	{"a change that the reader missed", check.RuleCursor, func(h *check.History) { h.Sightings = h.Sightings[:1] }},
	{"a machine that the reader never saw", check.RuleCursor, func(h *check.History) { h.Sightings = nil }},
	{"a reader that is sent back", check.RuleCursor, func(h *check.History) { slices.Reverse(h.Sightings) }},
	{"a log line that is lost", check.RuleLogs, func(h *check.History) { h.Logs = nil }},
	{"a line of a disk that is lost", check.RuleLogs, func(h *check.History) {
		repaved(h, sim.StageVerified)
		h.Logs = nil
	}},
	{"a log line twice", check.RuleLogs, func(h *check.History) {
		h.Logs = append(h.Logs, check.LogLine{Operation: "op-1", Seq: 2, Text: h.Logs[0].Text})
	}},
	{"a gap in the log", check.RuleLogs, func(h *check.History) { h.Logs[0].Seq = 2 }},
	{"two answers to one request", check.RuleAnswers, func(h *check.History) {
		h.Calls = append(h.Calls, check.Call{Method: check.Start, Machine: "m-1", Request: "7-a", Begin: ms(600),
			End: ms(610), Outcome: check.OK, Operation: "op-2", Phase: "PENDING"})
	}},
	{"busy with nothing", check.RuleAnswers, func(h *check.History) {
		h.Calls = append(h.Calls, check.Call{Method: check.Start, Machine: "m-1", Request: "7-c", Begin: ms(600),
			End: ms(610), Outcome: check.Refused, Reason: "MACHINE_BUSY"})
	}},
	{"a refusal of a request that was taken", check.RuleAnswers, func(h *check.History) {
		h.Calls = append(h.Calls, check.Call{Method: check.Start, Machine: "m-1", Request: "7-a", Begin: ms(600),
			End: ms(610), Outcome: check.Refused, Reason: "COMMAND_UNRESOLVED"})
	}},
	{"an end that is taken back", check.RuleAnswers, func(h *check.History) {
		h.Calls = append(h.Calls, check.Call{Method: check.Get, Machine: "m-1", Operation: "op-1", Begin: ms(600),
			End: ms(610), Outcome: check.OK, Phase: "RUNNING"})
	}},
	{"a history that was changed", check.RuleAudit, func(h *check.History) {
		h.Verdicts = append(h.Verdicts, &baremetalv1.TimelineVerdict{MachineId: "m-1", BrokenSeq: 3})
	}},
	{"active after its end", check.RuleAnswers, func(h *check.History) { h.Calls[6].Active = "op-1" }},
	{"not active before its end", check.RuleAnswers, func(h *check.History) {
		h.Calls = append(h.Calls,
			check.Call{Method: check.GetMachine, Machine: "m-1", Begin: ms(62), End: ms(64), Outcome: check.OK},
			check.Call{Method: check.GetMachine, Machine: "m-1", Begin: ms(66), End: ms(68), Outcome: check.OK, Active: "op-1"})
	}},
	{"too late to cancel what runs", check.RuleAnswers, func(h *check.History) {
		h.Calls = append(h.Calls,
			check.Call{Method: check.Cancel, Machine: "m-1", Operation: "op-1", Begin: ms(62), End: ms(64),
				Outcome: check.Refused, Reason: "OPERATION_FINISHED"},
			check.Call{Method: check.GetMachine, Machine: "m-1", Begin: ms(66), End: ms(68), Outcome: check.OK, Active: "op-1"})
	}},
}

func TestAGoodHistory(t *testing.T) {
	t.Parallel()
	if found := check.Judge(good()); len(found) > 0 {
		t.Error(found)
	}
}

func TestEachRuleFindsItsOwn(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{}
	for _, b := range bad {
		tried[b.rule] = true
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			h := good()
			b.change(&h)
			found := check.Judge(h)
			if !slices.ContainsFunc(found, func(v check.Violation) bool { return v.Rule == b.rule }) {
				t.Errorf("%s is not among %v", b.rule, found)
			}
		})
	}
	for _, b := range wideBad {
		tried[b.rule] = true
	}
	for _, rule := range check.Rules {
		if !tried[rule] {
			t.Errorf("no history breaks %s", rule)
		}
	}
}

// What may look wrong and is not.
// TestTimesOfSteppedClocksProveNothing: what was set cannot say what came first; what happened twice still happened
// twice.
func TestTimesOfSteppedClocksProveNothing(t *testing.T) {
	t.Parallel()
	h := good()
	for i := range h.Effects {
		h.Effects[i].At = h.Effects[i].At.Add(-time.Hour)
	}
	if len(check.Judge(h)) == 0 {
		t.Fatal("effects an hour before their grant are no violation though no clock was set")
	}
	h.Faults = append(h.Faults, check.Fault{Kind: "step-agent", Target: "agent-1", Detail: "by -1h0m0s", Took: true})
	if found := check.Judge(h); len(found) != 0 {
		t.Errorf("judged by a clock that was set: %v", found)
	}
	again := h.Effects[1]
	again.Seq, again.BootID = 3, "boot-3"
	h.Effects = append(h.Effects, again)
	if !slices.ContainsFunc(check.Judge(h), func(v check.Violation) bool { return v.Rule == check.RuleOnce }) {
		t.Error("a second effect is not noticed beside a clock that was set")
	}
}

func TestWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*check.History){
		"a record that came twice": func(h *check.History) { h.Effects = append(h.Effects, h.Effects[1]) },
		"a line that went with the agent's memory": func(h *check.History) {
			h.Logs, h.Faults[0].Forgets = nil, true
		},
		"a line that the agent has logged as lost": func(h *check.History) { h.Logs, h.Header.Lost = nil, 1 },
		"an unknown outcome that a late result has settled": func(h *check.History) {
			failed(h, "OUTCOME_UNKNOWN")
			h.Commands[0].Outcome, h.Commands[0].SettledBy = "SUCCEEDED", "late_result"
		},
		"a start of unknown outcome that never was": func(h *check.History) {
			h.Calls = append(h.Calls, check.Call{Method: check.Start, Machine: "m-1", Request: "7-x", Begin: ms(15),
				End: ms(600), Outcome: check.Unknown})
		},
		"an operation that was asked for first and admitted last": func(h *check.History) {
			o := canceled(h)
			o.StartedAt, o.FinishedAt = stamp(600), stamp(605)
			h.Calls[len(h.Calls)-1].Begin, h.Calls[len(h.Calls)-1].End = ms(604), ms(720)
		},
		"a grant that was given again after a sleep": func(h *check.History) {
			sleptOver(h)
			h.Grants = append(h.Grants, h.Grants[0])
		},
		"a sleep after the effect was asked for": func(h *check.History) {
			h.Faults = []check.Fault{{Kind: "suspend-agent", Machine: "m-1", Begin: ms(160), End: ms(170), Asleep: time.Minute,
				Took: true}}
		},
		"a sleep that is shorter than a grant lasts": func(h *check.History) {
			sleptOver(h)
			h.Faults[0].Asleep = 29 * time.Second
		},
		"a command that expired while its machine slept": func(h *check.History) {
			h.Commands[0].Outcome, h.Commands[0].Message, h.Commands[0].Deadline = "REFUSED", expiredAt(5000),
				stamp(5000)
			h.Commands[0].GrantedAt, h.Effects, h.Logs = nil, nil, nil
			h.Operations[0].Phase, h.Operations[0].Error = baremetalv1.Operation_FAILED,
				&baremetalv1.ErrorStatus{Code: "COMMAND_EXPIRED"}
			h.Events[2].Phase, h.Calls[5].Phase = "FAILED", "FAILED"
			h.Faults = []check.Fault{{Kind: "suspend-agent", Machine: "m-1", Begin: ms(20), End: ms(30), Asleep: time.Minute,
				Took: true}}
		},
		"a machine that is quarantined over a clone": func(h *check.History) {
			h.Faults = []check.Fault{{Kind: "elsewhere-agent", Target: "agent-1", Machine: "m-1", Took: true}}
			h.Machines[0].Status.NodeState = baremetalv1.NodeState_NODE_STATE_QUARANTINED
		},
		"a netboot that two attempts set": func(h *check.History) {
			h.Operations[0].Type, h.Commands[0].Kind, h.Logs = baremetalv1.Operation_NETBOOT, "netboot", nil
			h.Commands[0].Outcome = "FAILED"
			twice(h)
			h.Effects = h.Effects[1:]
			for i := range h.Effects {
				h.Effects[i].Kind, h.Effects[i].Seq = sim.KindBootNext, uint64(i+1)
			}
		},
		"a disk that a cancel left half written": func(h *check.History) {
			failed(h, "CANCELED_BY_REQUEST")
			h.Operations[0].Phase, h.Events[2].Phase, h.Calls[5].Phase = baremetalv1.Operation_CANCELED, "CANCELED", "CANCELED"
			h.Commands[0].Outcome = "CANCELED"
			h.Calls = append(h.Calls, check.Call{Method: check.Cancel, Machine: "m-1", Operation: "op-1", Begin: ms(300),
				End: ms(310), Outcome: check.OK, Phase: "RUNNING"})
			repaved(h)
		},
		"a reboot into another system": func(h *check.History) {
			failed(h, "WRONG_SYSTEM_BOOTED")
			h.Commands[0].SettledBy = "other_system_booted"
		},
		"an unknown reboot that a new boot proved": func(h *check.History) {
			failed(h, "OUTCOME_UNKNOWN")
			h.Commands[0].Outcome, h.Commands[0].SettledBy = "UNKNOWN", "new_boot"
		},
		"an unknown reboot whose result came late": func(h *check.History) {
			failed(h, "OUTCOME_UNKNOWN")
			h.Commands[0].Outcome, h.Commands[0].SettledBy = "SUCCEEDED", "late_result"
		},
		"a command that came after its expiry, and whose grant had moved the deadline": func(h *check.History) {
			h.Commands[0].Outcome, h.Commands[0].Message, h.Commands[0].Deadline = "REFUSED", expiredAt(-5000), stamp(5000)
			h.Effects, h.Logs = nil, nil
			h.Operations[0].Phase, h.Operations[0].Error = baremetalv1.Operation_FAILED,
				&baremetalv1.ErrorStatus{Code: "COMMAND_EXPIRED"}
			h.Events[2].Phase, h.Calls[5].Phase = "FAILED", "FAILED"
		},
		"an operation that a cancel ended": func(h *check.History) {
			o := h.Operations[0]
			o.Phase, o.Error, o.Evidence = baremetalv1.Operation_CANCELED, &baremetalv1.ErrorStatus{Code: "CANCELED_BY_REQUEST"},
				nil
			h.Commands, h.Effects, h.Logs = nil, nil, nil
			h.Events[2].Phase, h.Calls[5].Phase = "CANCELED", "CANCELED"
			h.Calls = append(h.Calls, check.Call{Method: check.Cancel, Machine: "m-1", Operation: "op-1", Begin: ms(300),
				End: ms(310), Outcome: check.OK, Phase: "CANCELED"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := good()
			change(&h)
			if found := check.Judge(h); len(found) > 0 {
				t.Error(found)
			}
		})
	}
}

func TestAHistoryIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for _, b := range bad {
		h := good()
		b.change(&h)
		var first, second bytes.Buffer
		if err := h.Write(&first); err != nil {
			t.Fatal(err)
		}
		text := first.String()
		read, err := check.Read(&first)
		if err != nil {
			t.Fatal(err)
		}
		if err := read.Write(&second); err != nil {
			t.Fatal(err)
		}
		if len(text) != second.Len() {
			t.Errorf("%s: read as another history", b.name)
		}
		if n, m := len(check.Judge(h)), len(check.Judge(read)); n != m {
			t.Errorf("%s: %d violations, %d once it was read again", b.name, n, m)
		}
	}
	if _, err := check.Read(bytes.NewBufferString("{\"call\": 7}\n")); err == nil {
		t.Error("nonsense is read")
	}
}
