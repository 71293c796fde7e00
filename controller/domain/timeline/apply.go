package timeline

import (
	"maps"
	"time"
)

// Apply moves the state on by one entry. Kinds that are not known change nothing: a newer version wrote them.
func (s *State) Apply(e Entry) error {
	changes, err := e.Changes()
	if err != nil {
		return err
	}
	s.Last = e
	s.Last.Fields = nil
	for _, c := range changes {
		if c.Kind == Restored {
			s.Restores = append(s.Restores, Restore{Seq: e.Seq, Time: e.Time,
				Through: time.UnixMicro(number(c.Fields["through"])).UTC()})
			continue
		}
		s.apply(c)
	}
	return nil
}

func (s *State) apply(c Change) {
	v := c.Fields
	switch c.Kind {
	case Snapshot, Machine:
		s.applyMachine(v)
	case Condition:
		s.applyCondition(c)
	case Operation:
		s.applyOperation(c.OperationID, v)
	case Step:
		s.applyStep(c)
	case Command:
		s.applyCommand(c)
	case Workflow:
		s.applyWorkflow(c)
	case NodeState:
		s.Moves[v["log_id"]] = MoveState{From: v["from"], To: v["to"], By: v["by"], User: c.Own}
	case Audit:
		s.applyAudit(c)
	case Recount:
		if row, ok := s.Audits[v["audit_id"]]; ok && row.Verb == refused {
			row.Digest = v["data_digest"]
			s.Audits[v["audit_id"]] = row
		}
	}
}

func (s *State) applyAudit(c Change) {
	v := c.Fields
	id := v["audit_id"]
	if _, known := s.Audits[id]; known {
		s.Repeated = append(s.Repeated, id)
		return
	}
	s.Audits[id] = AuditRow{
		Actor: c.Actor, OperationID: c.OperationID, Verb: v["verb"], Target: v["target"], RequestID: v["request_id"],
		At: v["at"], Digest: v["data_digest"], ScrubThrough: v["scrub_through"], ScrubVerb: v["scrub_verb"],
	}
}

// begins are the fields of a machine's first entries that are about the history itself.
func (s *State) begins() map[string]*string {
	return map[string]*string{"operations_before": &s.OperationsBefore, "moves_before": &s.MovesBefore,
		"last_move": &s.LastMove}
}

func (s *State) applyMachine(v map[string]string) {
	s.Exists = true
	for name, to := range s.begins() {
		if n, ok := v[name]; ok {
			*to = n
			delete(v, name)
		}
	}
	maps.Copy(s.Machine, v)
	maps.DeleteFunc(s.Machine, func(name, value string) bool {
		return value == "" || name == "install_attempts" &&
			value == "0"
	})
}

func (s *State) applyCondition(change Change) {
	v := change.Fields
	if v["status"] == "" {
		delete(s.Conditions, v["type"])
		return
	}
	old, known := s.Conditions[v["type"]]
	c := ConditionState{Status: v["status"], Reason: v["reason"], Message: v["message"], Since: old.Since,
		Unknown: v["known"] == "false"}
	if !known || old.Status != c.Status {
		c.Since = change.at
	}
	s.Conditions[v["type"]] = c
}

func (s *State) applyOperation(id string, v map[string]string) {
	s.Operations[id] = OperationState{
		Type: v["type"], Phase: v["phase"], Stage: v["stage"], WaitReason: v["wait_reason"], Error: v["error"],
		Evidence: v["evidence"], CancelRequested: v["cancel_requested"] != "", Steps: s.Operations[id].Steps,
	}
}

// waiting is a step that has not begun.
var waiting = StepState{State: "WAITING"}

func (s *State) applyStep(c Change) {
	v, op := c.Fields, s.Operations[c.OperationID]
	if op.Steps == nil {
		op.Steps = map[string]StepState{}
	}
	step := StepState{State: v["state"], Retries: v["retries"], Evidence: v["evidence"], Message: v["message"]}
	began := step != waiting
	if !c.whole {
		step.Message = Untold
	}
	op.Steps[v["step"]] = step
	if !began {
		delete(op.Steps, v["step"])
	}
	s.Operations[c.OperationID] = op
}

func (s *State) applyCommand(c Change) {
	v := c.Fields
	s.Commands[c.CommandID] = CommandState{
		OperationID: c.OperationID, Kind: v["kind"], Step: v["step"], Attempt: v["attempt"], Executor: v["executor_id"],
		State: v["state"], Outcome: v["outcome"], Reason: v["reason"], Evidence: v["evidence"], SettledBy: v["settled_by"],
		Claimed: v["claimed"] != "",
	}
}

func (s *State) applyWorkflow(c Change) {
	v := c.Fields
	s.Workflows[v["workflow_id"]] = WorkflowState{
		Kind: v["kind"], Mode: v["mode"], State: v["state"], Stage: v["stage"], Plan: v["plan"],
		Attempt: v["attempt"], Repeats: v["repeats"], OperationID: c.OperationID,
		FailureClass: v["failure_class"], Reason: v["reason"], Message: v["message"],
		Observed: v["observed"], Action: v["action"], Evidence: v["evidence"],
		Adopted: v["adopted"] != "", Ended: v["ended"] != "",
	}
}
