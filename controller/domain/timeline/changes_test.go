package timeline_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/timeline"
)

// decommissioned is a transaction of a workflow: its first stage is done, the node has moved, by an admin's request.
const decommissioned = `[["workflow", "", "op-1", "", {"workflow_id": "wf-1", "kind": "DECOMMISSION", "mode": "SOFT_RESET", "state": "RUNNING", "stage": "drain_node", "plan": "disable_node,drain_node", "attempt": "1"}],
 ["step", "", "op-1", "", {"step": "disable-node", "state": "SUCCEEDED", "message": "the phase is MAINTENANCE"}],
 ["node_state", "jo", "", "", {"from": "active", "to": "draining", "by": "admin", "log_id": "7"}],
 ["command", "a-1", "op-1", "cmd-1", {"kind": "reboot", "state": "ACKED"}],
 ["audit", "team", "op-1", "", {"audit_id": "3", "verb": "DECOMMISSION"}]]`

func changes(fields string) timeline.Entry {
	e := timeline.Entry{MachineID: "m-1", Seq: 1, Time: time.UnixMicro(1_700_000_000_000_000), Tx: 7,
		Kind: timeline.Changes, Fields: []byte(fields)}
	e.Hash = e.Sum()
	return e
}

func TestChangesOfOneTransaction(t *testing.T) {
	e := changes(decommissioned)
	if b := verify("m-1", []timeline.Entry{e}); b != nil {
		t.Fatal(b)
	}
	all, err := e.Changes()
	if err != nil || len(all) != 5 {
		t.Fatalf("%d changes, %v", len(all), err)
	}
	for _, c := range all {
		if c.Actor != "team" {
			t.Errorf("%s was done by %q", c.Kind, c.Actor)
		}
	}
	if all[3].Own != "a-1" || all[3].CommandID != "cmd-1" || all[1].OperationID != "op-1" {
		t.Errorf("%+v", all)
	}
	alone, err := changes(`[["command", "a-1", "op-1", "cmd-1", {"state": "ACKED"}]]`).Changes()
	if err != nil || alone[0].Actor != "a-1" {
		t.Errorf("%+v, %v", alone, err)
	}
}

func TestRebuildOfAWorkflow(t *testing.T) {
	s, err := rebuild([]timeline.Entry{changes(decommissioned)})
	if err != nil {
		t.Fatal(err)
	}
	w := s.Workflows["wf-1"]
	if w.State != "RUNNING" || w.Stage != "drain_node" || w.OperationID != "op-1" || w.Attempt != "1" || w.Ended {
		t.Errorf("%+v", w)
	}
	if got := s.Operations["op-1"].Steps["disable-node"].Message; got != "the phase is MAINTENANCE" {
		t.Errorf("the stage says %q", got)
	}
	if got := s.Moves["7"]; got != (timeline.MoveState{From: "active", To: "draining", By: "admin", User: "jo"}) {
		t.Errorf("%+v", got)
	}
	if s.Audits["3"].Actor != "team" || s.Commands["cmd-1"].State != "ACKED" {
		t.Errorf("%+v", s)
	}
}

func TestChangesThatCannotBeRead(t *testing.T) {
	for _, fields := range []string{
		`{}`, `[`, `[["step"]]`, `[["step", "", "", "", {}, "more"]]`, `[["", "", "", "", {}]]`, `[[1, "", "", "", {}]]`,
		`[["step", "", "", "", {"a": 1}]]`,
	} {
		if _, err := changes(fields).Changes(); err == nil {
			t.Errorf("%s is taken", fields)
		}
	}
}

// What the tables say of workflows, moves and messages is held against the history.
func TestDiffOfAWorkflow(t *testing.T) {
	s, err := rebuild([]timeline.Entry{changes(decommissioned)})
	if err != nil {
		t.Fatal(err)
	}
	tables := func() timeline.Tables {
		return timeline.Tables{
			Operations: s.Operations, Commands: s.Commands,
			Workflows: map[string]timeline.WorkflowState{"wf-1": s.Workflows["wf-1"]},
			Moves:     map[string]timeline.MoveState{"7": s.Moves["7"]},
			Audits:    map[string]timeline.AuditData{"3": {AuditRow: s.Audits["3"], Data: "{}", Salt: []byte("x")}},
		}
	}
	for want, change := range map[string]func(*timeline.Tables){
		"workflow wf-1:": func(t *timeline.Tables) {
			w := t.Workflows["wf-1"]
			w.Stage = "cleanup_storage"
			t.Workflows["wf-1"] = w
		},
		"workflow wf-2: {":     func(t *timeline.Tables) { t.Workflows["wf-2"] = timeline.WorkflowState{} },
		"node move 7: nothing": func(t *timeline.Tables) { delete(t.Moves, "7") },
		"node move 8: {":       func(t *timeline.Tables) { t.Moves["8"] = timeline.MoveState{} },
		"operation op-1": func(t *timeline.Tables) {
			t.Operations = map[string]timeline.OperationState{
				"op-1": {Steps: map[string]timeline.StepState{"disable-node": {State: "SUCCEEDED", Message: "x"}}}}
		},
	} {
		c := tables()
		change(&c)
		if all := strings.Join(timeline.Diff(s, c), "\n"); !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	whole := strings.Join(timeline.Diff(s, tables()), "\n")
	for _, want := range []string{"workflow", "move", "operation"} {
		if strings.Contains(whole, want) {
			t.Errorf("%q in\n%s", want, whole)
		}
	}
}

// What was written down before is compared as far as it goes: no messages of steps, and moves only by their number.
func TestDiffOfWhatIsOlder(t *testing.T) {
	old := timeline.Entry{MachineID: "m-1", Seq: 1, Kind: timeline.Step, OperationID: "op-1",
		Fields: []byte(`{"step": "boot", "state": "FAILED"}`)}
	since := changes(`[["machine", "", "", "", {"moves_before": "2", "last_move": "5"}]]`)
	s, err := rebuild([]timeline.Entry{old, since})
	if err != nil {
		t.Fatal(err)
	}
	tables := timeline.Tables{
		Operations: map[string]timeline.OperationState{
			"op-1": {Steps: map[string]timeline.StepState{"boot": {State: "FAILED", Message: "no"}}}},
		Moves: map[string]timeline.MoveState{"2": {To: "active"}, "5": {To: "offline"}},
	}
	if got := timeline.Diff(s, tables); len(got) != 0 {
		t.Errorf("%q", got)
	}
	delete(tables.Moves, "2")
	if got := timeline.Diff(s, tables); len(got) != 1 || !strings.Contains(got[0], "node moves: the table has 1") {
		t.Errorf("%q", got)
	}
}
