package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/times"
)

// Result is the last word on an operation.
func (l *Live) Result(op *pb.Operation) string {
	lines := []string{l.verdict(op)}
	if d := Between(op.GetStartedAt(), op.GetFinishedAt()); d != "" {
		lines = append(lines, "Duration: "+d)
	}
	if e := op.GetError(); e != nil {
		lines = append(lines, errorLines(e)...)
	}
	if op.GetPhase() == pb.Operation_SUCCEEDED {
		lines = append(lines, evidenceLines(op)...)
	}
	if l.cfg.Boxed {
		return box(lines)
	}
	return strings.Join(lines, "\n") + "\n"
}

// evidenceLines are a heading, and each value of an operation's evidence on a line of its own; none without evidence.
// Times are in the zone of the output.
func evidenceLines(op *pb.Operation) []string {
	f := &Fields{}
	for _, key := range slices.Sorted(maps.Keys(op.GetEvidence())) {
		value := op.GetEvidence()[key]
		if at, ok := times.ParseTime(value, time.Time{}); ok && strings.HasSuffix(key, "_at") {
			value = times.TimeOf(at)
		}
		f.Add("  "+Clean(key), Clean(value))
	}
	if f.String() == "" {
		return nil
	}
	return append([]string{"Evidence:"}, strings.Split(strings.TrimSuffix(f.String(), "\n"), "\n")...)
}

func (l *Live) verdict(op *pb.Operation) string {
	s := l.cfg.Style
	switch op.GetPhase() {
	case pb.Operation_SUCCEEDED:
		return s.Good("✓ SUCCEEDED")
	case pb.Operation_FAILED:
		return s.Bad("✗ FAILED")
	case pb.Operation_CANCELED:
		return s.Warn("■ CANCELED")
	}
	return trimEnum(op.GetPhase().String(), "PHASE_")
}

func errorLines(e *pb.ErrorStatus) []string {
	lines := []string{"Error: " + Clean(e.GetMessage()) + " (" + e.GetCode() + ")"}
	if d := Pairs(e.GetDetails()); d != "" {
		lines = append(lines, "Details: "+d)
	}
	if e.GetRetryable() {
		lines = append(lines, "Retryable: yes, a new operation may succeed")
	}
	return lines
}

// After shows the machine once the operation is over and its changes since before. Either may be nil.
func (l *Live) After(before, after *pb.Machine) string {
	if after == nil {
		return ""
	}
	lines := []string{
		"Phase: " + phaseChange(before, after),
		"EffectiveState: " + l.effectiveChange(before, after),
		"Conditions: " + dash(conditionChange(before, after)),
		"ActiveOperationId: " + activeChange(after),
	}
	if id := after.GetStatus().GetUnresolvedCommandId(); id != "" {
		lines = append(lines, l.cfg.Style.Bad("UnresolvedCommandId: "+id))
	}
	if l.cfg.Boxed {
		return "\nMachine state after operation:\n" + box(lines)
	}
	return "Machine state after operation:\n  " + strings.Join(lines, "\n  ") + "\n"
}

func phaseChange(before, after *pb.Machine) string {
	now := Phase(after.GetStatus().GetPhase())
	if before == nil {
		return now
	}
	was := Phase(before.GetStatus().GetPhase())
	if was == now {
		return now + " (unchanged)"
	}
	return now + " (was " + was + ")"
}

func (l *Live) effectiveChange(before, after *pb.Machine) string {
	now := after.GetStatus().GetEffectiveState()
	text := l.cfg.Style.effective(now)
	if before == nil {
		return text
	}
	if was := during(&pb.Operation{}, before); was != now {
		return text + " (was " + Effective(was) + ")"
	}
	return text + " (unchanged)"
}

func conditionChange(before, after *pb.Machine) string {
	var out []string
	for _, c := range after.GetStatus().GetConditions() {
		had := Holds(before, c.GetType())
		switch {
		case c.GetStatus() && !had && before != nil:
			out = append(out, c.GetType()+"=✓ (newly set)")
		case c.GetStatus():
			out = append(out, c.GetType()+"=✓")
		case had:
			out = append(out, c.GetType()+"=- (cleared)")
		}
	}
	return strings.Join(out, ", ")
}

func activeChange(after *pb.Machine) string {
	if id := after.GetStatus().GetActiveOperationId(); id != "" {
		return id + " (a later operation)"
	}
	return "(cleared)"
}

// Work is an operation or a run.
type Work interface {
	proto.Message
	GetMachineId() string
	GetPlanId() string
	GetParams() map[string]string
}

// BegunAs returns the id of the operation or run that the same request has begun; empty for none.
func BegunAs(w Work) string {
	if run, ok := w.(*pb.Run); ok {
		return run.GetRunId()
	}
	if op, ok := w.(*pb.Operation); ok {
		return op.GetOperationId()
	}
	return ""
}

// Validated returns what a call that only validates would start. id is the work that the same request has started
// before; begin is the command that starts it.
func Validated(w Work, id, begin string) string {
	f := &Fields{}
	f.Add("Machine", w.GetMachineId())
	f.Add("Accepted", "yes; nothing was begun")
	f.Add("Begun before", id)
	f.Add("Plan", Clean(w.GetPlanId()))
	for sentence := range strings.SplitSeq(w.GetParams()["not_asked"], "\n") {
		f.Add("Not known", Clean(sentence))
	}
	f.Add("To begin", Clean(begin))
	return f.String()
}

// ValidatedRollout returns how many machines a rollout that is only validated would work on.
func ValidatedRollout(ro *pb.Rollout, begin string) string {
	f := &Fields{}
	f.Add("Accepted", fmt.Sprintf("%d of %d machines; nothing was begun", ro.GetTally().GetPending(),
		ro.GetTally().GetMachines()))
	f.Add("To begin", Clean(begin))
	return f.String()
}
