package machine

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/timeline"
)

// timelineState is a state that was rebuilt from a history, as clients see it.
func timelineState(s *timeline.State) *baremetalv1.TimelineState {
	facts := factsThen(s)
	effective, attention := fleet.Evaluate(facts)
	phase := baremetalv1.MachineStatus_Phase_value[s.Machine["phase"]]
	out := &baremetalv1.TimelineState{
		Seq: s.Last.Seq, Ts: timestamppb.New(s.Last.Time), Hash: s.Last.Hash, Deleted: facts.Deleted,
		Status: &baremetalv1.MachineStatus{
			Phase:             baremetalv1.MachineStatus_Phase(phase),
			ActiveRunId:       s.Machine["current_operation_id"],
			ActiveOperationId: s.Machine["current_operation_id"],
			EffectiveState: baremetalv1.MachineStatus_EffectiveState(
				baremetalv1.MachineStatus_EffectiveState_value[string(effective)]),
			AttentionReason: attention.Reason, AttentionMessage: attention.Message,
			UnresolvedCommandId: s.Machine["unresolved_command_id"],
			NodeState: baremetalv1.NodeState(baremetalv1.NodeState_value["NODE_STATE_"+
				strings.ToUpper(s.Machine["node_state"])]),
			Schedulable: effective.Schedulable(),
			BootId:      s.Machine["boot_id"], AgentId: s.Machine["agent_id"], OsImageDigest: s.Machine["os_image_digest"],
			PowerState: s.Machine["power_state"], BootAssignment: s.Machine["boot_mode"],
		},
	}
	for _, name := range slices.Sorted(maps.Keys(s.Conditions)) {
		c := s.Conditions[name]
		out.Status.Conditions = append(out.Status.Conditions, &baremetalv1.Condition{
			Type:           name,
			Status:         c.Status == "true",
			Reason:         c.Reason,
			Message:        c.Message,
			LastTransition: service.StampIfSet(c.Since),
			Known:          !c.Unknown,
		})
	}
	addWork(out, s)
	return out
}

func factsThen(s *timeline.State) fleet.Facts {
	unknown := map[fleet.ConditionType]bool{}
	f := fleet.Facts{
		Phase: fleet.Phase(s.Machine["phase"]), NodeState: fleet.NodeState(s.Machine["node_state"]),
		Conditions: map[fleet.ConditionType]bool{}, Unknown: unknown,
		ActiveOperation: s.Machine["current_operation_id"] != "", UnresolvedCommand: s.Machine["unresolved_command_id"],
		Deleted: s.Machine["deleted"] != "",
	}
	for name, c := range s.Conditions {
		f.Conditions[fleet.ConditionType(name)] = c.Status == "true"
		if c.Unknown && c.Status != "true" {
			unknown[fleet.ConditionType(name)] = true
		}
		if name == string(fleet.NeedsIntervention) && c.Status == "true" {
			f.Intervention = fleet.Attention{Reason: c.Reason, Message: c.Message}
		}
	}
	for _, w := range s.Workflows {
		f.ActiveWorkflow = f.ActiveWorkflow || slices.Contains([]string{"PENDING", "RUNNING", "COMPENSATING"}, w.State)
	}
	return f
}

// addWork adds what was under way.
func addWork(out *baremetalv1.TimelineState, s *timeline.State) {
	id := s.Machine["current_operation_id"]
	if op, ok := s.Operations[id]; ok && id != "" {
		out.OperationId, out.OperationType, out.OperationPhase = id, op.Type, op.Phase
		out.OperationStage, out.OperationWaitReason = op.Stage, op.WaitReason
		out.StepStates, out.StepMessages = map[string]string{}, map[string]string{}
		for name, step := range op.Steps {
			out.StepStates[name] = step.State
			if step.Message != "" && step.Message != timeline.Untold {
				out.StepMessages[name] = step.Message
			}
		}
	}
	addWorkflow(out, s)
	for id, c := range s.Commands {
		switch c.State {
		case "QUEUED", "SENT", "ACKED", "GRANTED":
		default:
			continue
		}
		if out.OpenCommands == nil {
			out.OpenCommands = map[string]string{}
		}
		out.OpenCommands[id] = c.State
	}
}

// addWorkflow adds the one that held the machine.
func addWorkflow(out *baremetalv1.TimelineState, s *timeline.State) {
	for id, w := range s.Workflows {
		if w.Ended {
			continue
		}
		out.WorkflowId, out.WorkflowKind, out.WorkflowMode, out.WorkflowState = id, w.Kind, w.Mode, w.State
		out.WorkflowStage, out.WorkflowFailureClass, out.WorkflowMessage = w.Stage, w.FailureClass, w.Message
	}
}
