package view

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func at(seconds int) *timestamppb.Timestamp {
	return timestamppb.New(time.Date(2026, 3, 1, 12, 0, seconds, 0, time.UTC))
}

type script struct {
	*Live
	op  *pb.Operation
	now int
	out strings.Builder
}

func (s *script) event(kind, step, msg string) {
	s.out.WriteString(s.Event(&pb.OperationEvent{Ts: at(s.now), Snapshot: s.op, Kind: kind, Step: step, Message: msg}))
}

func (s *script) log(step, text string) {
	s.out.WriteString(s.Log(&pb.LogChunk{Step: step, Data: []byte(text)}))
}

func reimage() *script {
	return &script{
		Live: NewLive(LiveConfig{Boxed: true}),
		op: &pb.Operation{OperationId: "op-abc123", MachineId: "machine-1", Type: pb.Operation_REIMAGE,
			Phase: pb.Operation_RUNNING, CreatedAt: at(0), StartedAt: at(0)},
	}
}

func withConditions(eff pb.MachineStatus_EffectiveState, types ...string) *pb.Machine {
	m := &pb.Machine{MachineId: "machine-1", Status: &pb.MachineStatus{Phase: pb.MachineStatus_MAINTENANCE,
		EffectiveState: eff}}
	for _, c := range types {
		m.Status.Conditions = append(m.Status.Conditions, &pb.Condition{Type: c, Status: true})
	}
	return m
}

const golden = `┌─────────────────────────────────────────────────────────────
│ Operation: op-abc123
│ Machine: machine-1
│ Type: REIMAGE
│ Phase: MAINTENANCE → EffectiveState: BUSY
└─────────────────────────────────────────────────────────────

→ Setting netboot…
│ [netboot] Configuring PXE for ubuntu-2204
│ [netboot] DHCP updated
✓ Netboot configured

→ Repaving...
… waiting (WAITING_FOR_AGENT)
! connection lost, retrying…
! connected again
↻ Repave again
│ [repave] Image written successfully
✓ Repave complete (4m 00s)

┌─────────────────────────────────────────────────────────────
│ ✓ SUCCEEDED
│ Duration: 4m 32s
│ Evidence:
│   image_digest:  abc
└─────────────────────────────────────────────────────────────

Machine state after operation:
┌─────────────────────────────────────────────────────────────
│ Phase: MAINTENANCE (unchanged)
│ EffectiveState: MAINTENANCE (was BUSY)
│ Conditions: Provisioned=✓, InCustomerCluster=✓ (newly set)
│ ActiveOperationId: (cleared)
└─────────────────────────────────────────────────────────────
`

func TestLiveViewGolden(t *testing.T) {
	s := reimage()
	before := withConditions(pb.MachineStatus_MAINTENANCE_IDLE, "Provisioned")
	s.out.WriteString(s.Header(s.op, before))
	s.event("created", "", "created")
	s.event("started", "", "started")
	s.event("step_started", "netboot", "Setting netboot")
	s.log("netboot", "Configuring PXE for ubuntu-2204\nDHCP updated\n")
	s.event("step_succeeded", "netboot", "Netboot configured")
	s.event("step_started", "repave", "Repaving...")
	s.op.WaitReason = "WAITING_FOR_AGENT"
	s.event("waiting", "repave", "")
	s.op.WaitReason = ""
	s.out.WriteString(s.Lost() + s.Back())
	s.event("step_retrying", "repave", "Repave again")
	s.log("repave", "Progress: 45%\n")
	s.log("repave", "Image written successfully")
	s.now = 240
	s.event("step_succeeded", "repave", "Repave complete")
	s.op.Phase, s.op.FinishedAt = pb.Operation_SUCCEEDED, at(272)
	s.op.Evidence = map[string]string{"image_digest": "abc"}
	s.event("succeeded", "", "done")
	s.out.WriteString(s.Result(s.op))
	s.out.WriteString(s.After(before, withConditions(pb.MachineStatus_MAINTENANCE_IDLE, "Provisioned",
		"InCustomerCluster")))
	if s.out.String() != golden {
		t.Errorf("got:\n%s\nwant:\n%s", s.out.String(), golden)
	}
}

func TestStatusLine(t *testing.T) {
	s := reimage()
	if got := s.Status(at(0).AsTime()); got != "" {
		t.Errorf("a status without a step: %q", got)
	}
	s.event("step_started", "repave", "Repaving")
	s.log("repave", "[repave] progress 50%\n")
	if got, want := s.Status(at(63).AsTime()), "  repave  [████████████░░░░░░░░░░░░] 50%  1m 03s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Poll(&pb.Operation{ProgressPercent: 75, WaitReason: "WAITING_FOR_RESULT"})
	if got := s.Status(at(63).AsTime()); !strings.Contains(got, "75%") || !strings.Contains(got, "WAITING_FOR_RESULT") {
		t.Errorf("after a poll: %q", got)
	}
	s.event("step_succeeded", "repave", "Repaved")
	if got := s.Status(at(64).AsTime()); got != "" {
		t.Errorf("a status after the step: %q", got)
	}
}

func TestPlainViewPrintsProgressAsLines(t *testing.T) {
	l := NewLive(LiveConfig{})
	if got := l.Log(&pb.LogChunk{Step: "repave", Data: []byte("Progress: 45%\n")}); got != "│ [repave] Progress: 45%\n" {
		t.Errorf("got %q", got)
	}
	if got := l.Status(at(0).AsTime()); got != "" {
		t.Errorf("a status line in a log file: %q", got)
	}
}

func TestFailureNamesWhatIsKnown(t *testing.T) {
	l := NewLive(LiveConfig{})
	got := l.Result(&pb.Operation{Phase: pb.Operation_FAILED, Error: &pb.ErrorStatus{
		Code: "EXECUTION_FAILED", Message: "SSH connection refused", Retryable: true,
		Details: map[string]string{"attempts": "3"},
	}})
	want := "✗ FAILED\nError: SSH connection refused (EXECUTION_FAILED)\nDetails: attempts=3\nRetryable: yes, a new " +
		"operation may succeed\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAfterShowsChanges(t *testing.T) {
	after := withConditions(pb.MachineStatus_ATTENTION, "NeedsIntervention")
	after.Status.Phase, after.Status.UnresolvedCommandId = pb.MachineStatus_READY, "cmd-1"
	got := NewLive(LiveConfig{}).After(withConditions(pb.MachineStatus_MAINTENANCE_IDLE), after)
	for _, part := range []string{"Phase: READY (was MAINTENANCE)", "⚠ATTENTION (was BUSY)",
		"NeedsIntervention=✓ (newly set)", "UnresolvedCommandId: cmd-1"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is missing in:\n%s", part, got)
		}
	}
}
