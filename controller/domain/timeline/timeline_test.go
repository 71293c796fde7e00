package timeline_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/timeline"
)

// chain is a history as the database would write it.
func chain(machine string, fields ...string) []timeline.Entry {
	kinds := []string{timeline.Machine, timeline.Operation, timeline.Step, timeline.Command, timeline.Condition,
		timeline.Audit}
	var out []timeline.Entry
	var prev []byte
	for i, f := range fields {
		e := timeline.Entry{
			MachineID: machine, Seq: int64(i + 1), Time: time.UnixMicro(int64(1_700_000_000_000_000 + i)), Tx: int64(700 + i/2),
			Kind: kinds[i%len(kinds)], Actor: "a", OperationID: "op-1", CommandID: "cmd-1", Fields: []byte(f), Prev: prev,
		}
		e.Hash = e.Sum()
		prev = e.Hash
		out = append(out, e)
	}
	return out
}

var some = []string{
	`{"phase": "MAINTENANCE", "current_operation_id": "op-1"}`, `{"type": "REBOOT", "phase": "RUNNING"}`,
	`{"step": "reboot", "state": "RUNNING"}`,
	`{"kind": "reboot", "state": "SENT"}`, `{"type": "RMA", "status": "true"}`, `{"audit_id": "1", "verb": "REBOOT"}`,
	`{"current_operation_id": ""}`,
}

func TestWholeChainVerifies(t *testing.T) {
	if b := verify("m-1", chain("m-1", some...)); b != nil {
		t.Error(b)
	}
}

// Every bit of every text, number and hash counts.
func TestAnyFlippedBitBreaksTheChain(t *testing.T) {
	texts := map[string]func(*timeline.Entry) *string{
		"kind":      func(e *timeline.Entry) *string { return &e.Kind },
		"actor":     func(e *timeline.Entry) *string { return &e.Actor },
		"operation": func(e *timeline.Entry) *string { return &e.OperationID },
		"command":   func(e *timeline.Entry) *string { return &e.CommandID },
		"machine":   func(e *timeline.Entry) *string { return &e.MachineID },
	}
	raws := map[string]func(*timeline.Entry) *[]byte{
		"fields": func(e *timeline.Entry) *[]byte { return &e.Fields },
		"prev":   func(e *timeline.Entry) *[]byte { return &e.Prev },
		"hash":   func(e *timeline.Entry) *[]byte { return &e.Hash },
	}
	changes := 0
	try := func(what string, i int, change func(*timeline.Entry)) {
		changes++
		c := chain("m-1", some...)
		change(&c[i])
		if b := verify("m-1", c); b == nil || b.Seq != int64(i+1) {
			t.Errorf("%s of entry %d: %v", what, i+1, b)
		}
	}
	for i := range some {
		try("seq", i, func(e *timeline.Entry) { e.Seq ^= 1 })
		try("tx", i, func(e *timeline.Entry) { e.Tx ^= 1 })
		try("time", i, func(e *timeline.Entry) { e.Time = e.Time.Add(time.Microsecond) })
		for what, field := range texts {
			original := chain("m-1", some...)
			for bit := range 8 * len(*field(&original[i])) {
				try(what, i, func(e *timeline.Entry) {
					raw := []byte(*field(e))
					raw[bit/8] ^= 1 << (bit % 8)
					*field(e) = string(raw)
				})
			}
		}
		for what, field := range raws {
			original := chain("m-1", some...)
			for bit := range 8 * len(*field(&original[i])) {
				try(what, i, func(e *timeline.Entry) {
					raw := slices.Clone(*field(e))
					raw[bit/8] ^= 1 << (bit % 8)
					*field(e) = raw
				})
			}
		}
	}
	if changes < 5000 {
		t.Errorf("only %d changes were tried", changes)
	}
}

// A byte cannot move from one column to the next, an entry cannot go, come twice or change places.
func TestChainKeepsItsShape(t *testing.T) {
	for what, change := range map[string]func([]timeline.Entry) []timeline.Entry{
		"moved byte": func(c []timeline.Entry) []timeline.Entry {
			c[2].Actor, c[2].OperationID = "ao", "p-1"
			return c
		},
		"gone":     func(c []timeline.Entry) []timeline.Entry { return slices.Delete(c, 2, 3) },
		"twice":    func(c []timeline.Entry) []timeline.Entry { return slices.Insert(c, 2, c[1]) },
		"swap":     func(c []timeline.Entry) []timeline.Entry { c[2], c[3] = c[3], c[2]; return c },
		"beheaded": func(c []timeline.Entry) []timeline.Entry { return c[2:] },
	} {
		if b := verify("m-1", change(chain("m-1", some...))); b == nil {
			t.Errorf("%s: not found", what)
		}
	}
	if b := verify("m-2", chain("m-1", some...)); b == nil {
		t.Error("the chain of another machine is taken")
	}
}

func TestRebuild(t *testing.T) {
	s, err := rebuild(chain("m-1", some...))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(s.Machine) != "map[phase:MAINTENANCE]" || s.Operations["op-1"].Phase != "RUNNING" ||
		s.Operations["op-1"].Steps["reboot"].State != "RUNNING" ||
		s.Commands["cmd-1"].State != "SENT" || s.Conditions["RMA"].Status != "true" || s.Audits["1"].Verb != "REBOOT" ||
		s.Last.Seq != 7 {
		t.Errorf("%+v", s)
	}
	if _, err := rebuild([]timeline.Entry{{Fields: []byte("{")}}); err == nil {
		t.Error("fields that are no JSON are taken")
	}
}

func TestDiffNamesWhatDiffers(t *testing.T) {
	s, err := rebuild(chain("m-1", some...))
	if err != nil {
		t.Fatal(err)
	}
	lines := timeline.Diff(s, timeline.Tables{Machine: map[string]string{"phase": "READY"},
		Operations: map[string]timeline.OperationState{"op-2": {}}})
	all := strings.Join(lines, "\n")
	for _, want := range []string{`phase is "READY" in the table`, "condition RMA: nothing in the table",
		"operation op-1: nothing", "operations: the table has 1", "command cmd-1", "audit row 1 is gone"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}

func TestSummaries(t *testing.T) {
	for _, c := range []struct {
		kind string
		v    map[string]string
		want string
	}{
		{timeline.Machine, map[string]string{"phase": "READY", "current_operation_id": "", "spec": "f00"},
			"current_operation_id=none, phase=READY, spec or labels set"},
		{timeline.Condition, map[string]string{"type": "RMA", "status": "false", "reason": "SetByAdmin"},
			"RMA is false (SetByAdmin)"},
		{timeline.Operation, map[string]string{"type": "REBOOT", "phase": "RUNNING", "wait_reason": "WAITING_FOR_AGENT"},
			"REBOOT RUNNING (WAITING_FOR_AGENT)"},
		{timeline.Step, map[string]string{"step": "boot", "state": "SUCCEEDED"}, "step boot SUCCEEDED"},
		{timeline.Command, map[string]string{"kind": "reboot", "attempt": "1", "step": "boot", "state": "DONE",
			"outcome": "SUCCEEDED"}, "reboot (attempt 1 of step boot) DONE SUCCEEDED"},
		{timeline.Step, map[string]string{"step": "drain-node", "state": "SUCCEEDED", "message": "nobody is there",
			"evidence": "{}"}, "step drain-node SUCCEEDED: nobody is there"},
		{timeline.Workflow, map[string]string{"kind": "ONBOARDING", "state": "RUNNING", "stage": "verify_node"},
			"ONBOARDING RUNNING at stage verify_node"},
		{timeline.Workflow, map[string]string{
			"kind": "DECOMMISSION", "mode": "REIMAGE", "state": "FAILED_RETRYABLE", "stage": "install_node",
			"reason":        "STEP_TIMEOUT",
			"failure_class": "timeout", "message": "too late",
		}, "DECOMMISSION (REIMAGE) FAILED_RETRYABLE at stage install_node (STEP_TIMEOUT timeout): too late"},
		{timeline.Workflow, map[string]string{"kind": "ONBOARDING", "state": "COMPLETED", "stage": "verify_node",
			"ended": "true"}, "ONBOARDING COMPLETED"},
		{timeline.NodeState, map[string]string{"from": "pending", "to": "active", "by": "admin"},
			"node state pending → active by admin"},
		{timeline.Audit, map[string]string{"verb": "SETTLE"}, "SETTLE"},
	} {
		if got := timeline.Summary(c.kind, c.v); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// verify walks a whole chain. It returns nil, or the first break.
func verify(machineID string, entries []timeline.Entry) *timeline.Break {
	c := timeline.Chain{MachineID: machineID}
	for _, e := range entries {
		if b := c.Next(e); b != nil {
			return b
		}
	}
	return nil
}

// rebuild applies entries in order.
func rebuild(entries []timeline.Entry) (*timeline.State, error) {
	s := timeline.NewState()
	for _, e := range entries {
		if err := s.Apply(e); err != nil {
			return nil, err
		}
	}
	return s, nil
}
