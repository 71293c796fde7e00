package timeline

import (
	"maps"
	"time"
)

// State is what a machine was after an entry. Values are those of the database's columns.
type State struct {
	// Exists is true once the machine is known.
	Exists bool
	// Machine is the machine's own columns by name; what is empty is left out. "spec" is a digest of spec and labels.
	Machine map[string]string
	// OperationsBefore is how many operations had finished before the history began.
	OperationsBefore string
	// Conditions by type, Operations by id, Commands by id.
	Conditions map[string]ConditionState
	Operations map[string]OperationState
	Commands   map[string]CommandState
	// Audits are the rows of the audit log, by number.
	Audits map[string]AuditRow
	// Last is the last entry that was applied, without its fields.
	Last Entry
}

// ConditionState is one condition.
type ConditionState struct {
	Status, Reason, Message string
	// Since is the time of the entry that set the status.
	Since time.Time
}

// OperationState is one operation.
type OperationState struct {
	Type, Phase, Stage, WaitReason, Error, Evidence string
	CancelRequested                                 bool
	// Steps by name, those that have begun.
	Steps map[string]StepState
}

// StepState is one step that has begun.
type StepState struct{ State, Retries, Evidence string }

// CommandState is one attempt of one step.
type CommandState struct {
	OperationID, Kind, Step, Attempt, Executor  string
	State, Outcome, Reason, Evidence, SettledBy string
	Claimed                                     bool
}

// AuditRow is what the chain knows of a row of the audit log.
type AuditRow struct {
	Actor, OperationID, Verb, Target, RequestID string
	// At is microseconds since 1970.
	At string
	// Digest is lower hex of the SHA-256 of salt and data.
	Digest string
}

// NewState is the state before the first entry.
func NewState() *State {
	return &State{
		Machine: map[string]string{}, Conditions: map[string]ConditionState{}, Operations: map[string]OperationState{},
		Commands: map[string]CommandState{}, Audits: map[string]AuditRow{},
	}
}

// Rebuild applies entries in order.
func Rebuild(entries []Entry) (*State, error) {
	s := NewState()
	for _, e := range entries {
		if err := s.Apply(e); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Apply moves the state on by one entry. Kinds that are not known change nothing: a newer version wrote them.
func (s *State) Apply(e Entry) error {
	v, err := e.Values()
	if err != nil {
		return err
	}
	s.Last = e
	s.Last.Fields = nil
	switch e.Kind {
	case Snapshot, Machine:
		s.applyMachine(v)
	case Condition:
		s.applyCondition(e, v)
	case Operation:
		s.applyOperation(e.OperationID, v)
	case Step:
		s.applyStep(e.OperationID, v)
	case Command:
		s.applyCommand(e, v)
	case Audit:
		s.Audits[v["audit_id"]] = AuditRow{
			Actor: e.Actor, OperationID: e.OperationID, Verb: v["verb"], Target: v["target"], RequestID: v["request_id"],
			At: v["at"], Digest: v["data_digest"],
		}
	}
	return nil
}

func (s *State) applyMachine(v map[string]string) {
	s.Exists = true
	if n, ok := v["operations_before"]; ok {
		s.OperationsBefore = n
		delete(v, "operations_before")
	}
	maps.Copy(s.Machine, v)
	maps.DeleteFunc(s.Machine, func(name, value string) bool { return value == "" || name == "install_attempts" && value == "0" })
}

func (s *State) applyCondition(e Entry, v map[string]string) {
	if v["status"] == "" {
		delete(s.Conditions, v["type"])
		return
	}
	old, known := s.Conditions[v["type"]]
	c := ConditionState{Status: v["status"], Reason: v["reason"], Message: v["message"], Since: old.Since}
	if !known || old.Status != c.Status {
		c.Since = e.Time
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

func (s *State) applyStep(id string, v map[string]string) {
	op := s.Operations[id]
	if op.Steps == nil {
		op.Steps = map[string]StepState{}
	}
	op.Steps[v["step"]] = StepState{State: v["state"], Retries: v["retries"], Evidence: v["evidence"]}
	if op.Steps[v["step"]] == waiting {
		delete(op.Steps, v["step"])
	}
	s.Operations[id] = op
}

func (s *State) applyCommand(e Entry, v map[string]string) {
	s.Commands[e.CommandID] = CommandState{
		OperationID: e.OperationID, Kind: v["kind"], Step: v["step"], Attempt: v["attempt"], Executor: v["executor_id"],
		State: v["state"], Outcome: v["outcome"], Reason: v["reason"], Evidence: v["evidence"], SettledBy: v["settled_by"],
		Claimed: v["claimed"] != "",
	}
}
