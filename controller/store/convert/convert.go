package convert

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/jsonscan"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

var (
	specOut = protojson.MarshalOptions{UseProtoNames: true}
	SpecIn  = protojson.UnmarshalOptions{DiscardUnknown: true}
)

func SpecToJSON(s *baremetalv1.MachineSpec) ([]byte, error) {
	b, err := specOut.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("serialize spec: %w", err)
	}
	return b, nil
}

func SpecFromJSON(b []byte) (*baremetalv1.MachineSpec, error) {
	if s, ok := jsonscan.Spec(b); ok {
		return s, nil
	}
	s := &baremetalv1.MachineSpec{}
	if err := SpecIn.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("parse stored spec: %w", err)
	}
	return s, nil
}

// Timestamp is a time as clients see it: in microseconds, which is what Postgres stores, so that no two calls say it
// differently.
func Timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t.Truncate(time.Microsecond))
}

func TimestampPtr(t *time.Time) *timestamppb.Timestamp { return Timestamp(pgtx.TimeVal(t)) }

// OperationMessage is an operation as clients see it. The row has the constant fields, op the others.
func OperationMessage(r dbsqlc.Operation, op operation.Operation) *baremetalv1.Operation {
	m := &baremetalv1.Operation{
		OperationId: r.OperationID, MachineId: r.TargetID, RequestId: r.RequestID,
		Type:  baremetalv1.Operation_OperationType(baremetalv1.Operation_OperationType_value[r.Type]),
		Phase: baremetalv1.Operation_Phase(baremetalv1.Operation_Phase_value[string(op.Phase)]),
		// Params were written by us as a flat object.
		Params: JSONToMap(r.Params), CreatedAt: Timestamp(r.CreatedAt), StartedAt: Timestamp(op.StartedAt),
		FinishedAt: Timestamp(op.FinishedAt), CurrentStage: op.CurrentStage, PlanId: r.PlanID, WaitReason: op.WaitReason,
		NextLookAt: Timestamp(op.WakeAt), Version: r.Version, Evidence: op.Evidence, UpdatedAt: Timestamp(r.UpdatedAt),
	}
	if op.Error != nil {
		m.Error = &baremetalv1.ErrorStatus{
			Code: op.Error.Code, Message: op.Error.Message, Retryable: op.Error.Retryable, Details: op.Error.Details,
		}
	}
	return m
}

func JSONToMap(b []byte) map[string]string {
	if out, ok := jsonscan.StringMap(b); ok {
		if len(out) == 0 {
			return nil
		}
		return out
	}
	out := map[string]string{}
	if json.Unmarshal(b, &out) != nil || len(out) == 0 {
		return nil
	}
	return out
}

// runTypeNames are the run-level names of operation types.
var runTypeNames = map[fleet.OperationType]string{fleet.Reimage: "REPAVE", fleet.Reconfigure: "NET_RECONFIG"}

func RunMessage(
	m *baremetalv1.Operation, op operation.Operation, latest map[int]dbsqlc.LatestCommandsOfManyRow,
	progress map[int]dbsqlc.StepProgress,
) *baremetalv1.Run {
	run := &baremetalv1.Run{
		RunId: m.GetOperationId(), MachineId: m.GetMachineId(), RequestId: m.GetRequestId(), Type: runType(op.Type),
		PlanId: m.GetPlanId(), Phase: baremetalv1.Run_Phase(m.GetPhase()), CurrentStep: m.GetCurrentStage(),
		CreatedAt: m.GetCreatedAt(), StartedAt: m.GetStartedAt(), FinishedAt: m.GetFinishedAt(), Error: m.GetError(),
		WaitReason: m.GetWaitReason(), Params: m.GetParams(),
	}
	for i, s := range op.Steps {
		run.Steps = append(run.Steps, &baremetalv1.StepStatus{
			Name: s.Name, State: baremetalv1.StepStatus_State(baremetalv1.StepStatus_State_value[string(s.State)]),
			RetryCount: int32(s.RetryCount), StartedAt: Timestamp(s.StartedAt), FinishedAt: Timestamp(s.FinishedAt),
			Message: s.Message, Kind: string(s.Kind), CommandId: latest[i].CommandID,
			ExecutorAgentId: latest[i].ExecutorID, ProgressPercent: progress[i].Percent,
			ProgressMessage: progress[i].Message, Evidence: s.Evidence,
		})
	}
	return run
}

func runType(t fleet.OperationType) string {
	if name, ok := runTypeNames[t]; ok {
		return name
	}
	return string(t)
}

// MachineMessage is a machine as clients see it.
func MachineMessage(
	r dbsqlc.Machine, conds []dbsqlc.MachineCondition, seen Seen,
) (*baremetalv1.Machine, error) {
	spec, err := SpecFromJSON(r.Spec)
	if err != nil {
		return nil, err
	}
	f := FleetFacts(r, conds)
	state, attention := fleet.Evaluate(f)
	st := &baremetalv1.MachineStatus{
		Phase: baremetalv1.MachineStatus_Phase(baremetalv1.MachineStatus_Phase_value[r.Phase]),
		EffectiveState: baremetalv1.MachineStatus_EffectiveState(
			baremetalv1.MachineStatus_EffectiveState_value[string(state)]),
		ActiveOperationId: pgtx.StrVal(r.CurrentOperationID), ActiveRunId: pgtx.StrVal(r.CurrentOperationID),
		UnresolvedCommandId: pgtx.StrVal(r.UnresolvedCommandID), NodeState: NodeStateMessage(r.NodeState),
		InstallAttempts: r.InstallAttempts, LastInstallError: r.LastInstallError,
		NodeStateChangedAt: Timestamp(r.NodeStateChangedAt), Schedulable: state.Schedulable(), BootId: r.BootID,
		AgentId: pgtx.StrVal(r.AgentID), LastHeartbeatAt: TimestampPtr(seen.Heartbeat), Simulated: r.Simulated,
		OsImageDigest: r.OsImageDigest,
		PowerState:    r.PowerState, PowerStateAt: TimestampPtr(r.PowerStateAt), BootAssignment: r.BootMode,
		AttentionReason: attention.Reason, AttentionMessage: attention.Message,
		FirstProvisionedAt: TimestampPtr(r.FirstProvisionedAt), ActiveWorkflowId: pgtx.StrVal(r.ActiveWorkflowID),
		IdentityLevel: r.IdentityLevel, Tpm: TPMMessage(r), Agentless: r.Agentless, ProbedAddress: r.ProbeIp,
	}
	for _, c := range conds {
		if c.MachineID == r.MachineID {
			at, by := Observed(&c, &r, seen)
			st.Conditions = append(st.Conditions, &baremetalv1.Condition{
				Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransition: Timestamp(c.LastTransition),
				Known: c.Known, ObservedAt: Timestamp(at), ObservedBy: by,
			})
		}
	}
	return &baremetalv1.Machine{
		MachineId: r.MachineID, Labels: JSONToMap(r.Labels), Spec: spec, Status: st, CreatedAt: Timestamp(r.CreatedAt),
		UpdatedAt: Timestamp(r.UpdatedAt), DeletedAt: TimestampPtr(r.DeletedAt), Version: r.Version,
	}, nil
}

// TPMMessage is nil for a machine whose TPM is not recorded.
func TPMMessage(r dbsqlc.Machine) *baremetalv1.TPMStatus {
	if r.TpmKeyDigest == nil {
		return nil
	}
	return &baremetalv1.TPMStatus{
		EndorsementKey: hex.EncodeToString(r.TpmKeyDigest), Trust: r.TpmKeyTrust, RecordedAt: TimestampPtr(r.TpmKeyAt),
	}
}

func NodeStateMessage(s string) baremetalv1.NodeState {
	return baremetalv1.NodeState(baremetalv1.NodeState_value["NODE_STATE_"+strings.ToUpper(s)])
}
