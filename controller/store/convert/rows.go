package convert

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

var SHA256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

// CommandRow is a command together with its executor's role.
type CommandRow = dbsqlc.GetCommandRow

func FleetFacts(m dbsqlc.Machine, conds []dbsqlc.MachineCondition) fleet.Facts {
	f := fleet.Facts{
		MachineID: m.MachineID, Phase: fleet.Phase(m.Phase), NodeState: fleet.NodeState(m.NodeState),
		Conditions:      map[fleet.ConditionType]bool{},
		ActiveOperation: m.CurrentOperationID != nil, UnresolvedCommand: pgtx.StrVal(m.UnresolvedCommandID),
		Deleted: m.DeletedAt != nil, ActiveWorkflow: m.ActiveWorkflowID != nil, Agentless: m.Agentless,
	}
	for _, c := range conds {
		if c.MachineID != m.MachineID {
			continue
		}
		f.Conditions[fleet.ConditionType(c.Type)] = c.Status
		if !c.Known && !c.Status {
			f.Unknown = with(f.Unknown, fleet.ConditionType(c.Type))
		}
		if c.Status && c.Type == string(fleet.NeedsIntervention) {
			f.Intervention = fleet.Attention{Reason: c.Reason, Message: c.Message}
		}
	}
	return f
}

// with adds a condition to a set that is nil while it is empty: most machines have no unknown condition.
func with(set map[fleet.ConditionType]bool, c fleet.ConditionType) map[fleet.ConditionType]bool {
	if set == nil {
		set = map[fleet.ConditionType]bool{}
	}
	set[c] = true
	return set
}

func OperationFromRow(r dbsqlc.Operation, steps []dbsqlc.OperationStep) (operation.Operation, error) {
	op := operation.Operation{
		ID: r.OperationID, MachineID: r.TargetID, Type: fleet.OperationType(r.Type), PlanID: r.PlanID,
		Phase:       operation.Phase(r.Phase),
		CurrentStep: int(r.CurrentStep), CurrentStage: r.CurrentStage, WaitReason: r.WaitReason,
		WakeAt: pgtx.TimeVal(r.WakeAt), CancelRequested: pgtx.TimeVal(r.CancelRequestedAt), Version: r.Version,
		CreatedAt: r.CreatedAt, StartedAt: pgtx.TimeVal(r.StartedAt), FinishedAt: pgtx.TimeVal(r.FinishedAt),
		Destructive: r.Destructive, Interrupts: r.Interrupts,
	}
	if len(r.Error) > 0 {
		op.Error = &operation.Error{}
		if err := json.Unmarshal(r.Error, op.Error); err != nil {
			return op, fmt.Errorf("parse stored error: %w", err)
		}
	}
	if err := json.Unmarshal(r.Evidence, &op.Evidence); err != nil {
		return op, fmt.Errorf("parse stored evidence: %w", err)
	}
	for _, s := range steps {
		step, err := stepFromRow(s)
		if err != nil {
			return op, err
		}
		op.Steps = append(op.Steps, step)
	}
	return op, nil
}

func stepFromRow(r dbsqlc.OperationStep) (operation.Step, error) {
	s := operation.Step{
		Name: r.Name, Kind: kind.Kind(r.Kind), Timeout: time.Duration(r.TimeoutMs) * time.Millisecond,
		MaxRetries: int(r.MaxRetries), State: operation.StepState(r.State), RetryCount: int(r.RetryCount),
		RetryAt: pgtx.TimeVal(r.RetryAt), Message: r.Message, StartedAt: pgtx.TimeVal(r.StartedAt),
		FinishedAt: pgtx.TimeVal(r.FinishedAt),
	}
	if err := json.Unmarshal(r.Evidence, &s.Evidence); err != nil {
		return s, fmt.Errorf("parse stored evidence: %w", err)
	}
	spec := &baremetalv1.Step{}
	if err := ParseStep(r.Spec, spec); err != nil {
		return s, err
	}
	of := plan.StepOf(spec)
	s.Mode, s.Agentless, s.Needs = of.Mode, of.Agentless, of.Needs
	return s, nil
}

func ParseStep(stored []byte, into *baremetalv1.Step) error {
	if err := proto.Unmarshal(stored, into); err != nil {
		return fmt.Errorf("parse stored step: %w", err)
	}
	return nil
}

func CommandFromRow(r *CommandRow) *operation.Command {
	if r == nil {
		return nil
	}
	c := &operation.Command{
		ID: r.CommandID, StepIdx: int(r.StepIdx), Attempt: int(r.Attempt), Kind: kind.Kind(r.Kind),
		State: operation.CommandState(r.State), ExecutorID: r.ExecutorID, ExecutorRole: r.ExecutorRole,
		ExecutorStateID: r.ExecutorStateID, Digest: r.Digest, BootIDBefore: r.BootIDBefore, GrantSeq: uint64(r.GrantSeq),
		Deadline: r.Deadline, SentAt: pgtx.TimeVal(r.SentAt), AckedAt: pgtx.TimeVal(r.AckedAt),
		GrantedAt: pgtx.TimeVal(r.GrantedAt),
		ClaimedAt: pgtx.TimeVal(r.ClaimedAt), FinishedAt: pgtx.TimeVal(r.FinishedAt), Outcome: operation.Outcome(r.Outcome),
		Reason: r.Reason, Message: r.Message, SettledBy: r.SettledBy,
	}
	// Evidence was checked when it was written; an unreadable one counts as none.
	_ = json.Unmarshal(r.Evidence, &c.Evidence)
	return c
}

// ToJSONList writes messages as a JSON list of protojson with the proto's names.
func ToJSONList[M proto.Message](list []M) ([]byte, error) {
	all := make([]json.RawMessage, 0, len(list))
	for _, m := range list {
		raw, err := specOut.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("serialize list: %w", err)
		}
		all = append(all, raw)
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("serialize list: %w", err)
	}
	return raw, nil
}

// FromJSONList reads what toJSONList has written.
func FromJSONList[T any, M interface {
	*T
	proto.Message
}](raw []byte) ([]M, error) {
	var all []json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("parse stored list: %w", err)
	}
	out := make([]M, 0, len(all))
	for _, one := range all {
		m := M(new(T))
		if err := SpecIn.Unmarshal(one, m); err != nil {
			return nil, fmt.Errorf("parse stored list: %w", err)
		}
		out = append(out, m)
	}
	return out, nil
}

// InstallerPath is how the first of an operation's stored steps on disks wants the machine to get into the installer.
func InstallerPath(specs [][]byte) (string, error) {
	if len(specs) == 0 {
		return "", nil
	}
	step := &baremetalv1.Step{}
	if err := ParseStep(specs[0], step); err != nil {
		return "", err
	}
	return plan.InstallerPath(step), nil
}

// SegmentModes returns the mode of each stored network segment of a site.
func SegmentModes(raw []byte) ([]string, error) {
	segments, err := FromJSONList[baremetalv1.Segment](raw)
	modes := make([]string, len(segments))
	for i, g := range segments {
		modes[i] = g.GetMode()
	}
	return modes, err
}
