package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Changed returns the operations that were finished in h and are different in later.
func (h MachineHistory) Changed(later MachineHistory) []string {
	now := map[string]*baremetalv1.Operation{}
	for _, o := range later.Operations {
		now[o.GetOperationId()] = o
	}
	var out []string
	for _, o := range h.Operations {
		if Ended(o) && !proto.Equal(o, now[o.GetOperationId()]) {
			out = append(out, fmt.Sprintf("finished operation changed from %v to %v", o, now[o.GetOperationId()]))
		}
	}
	return out
}

// String is for the log of a failed test.
func (h MachineHistory) String() string {
	s := h.Machine.GetStatus()
	out := fmt.Sprintf("machine %s: phase %s, active %q, unresolved %q, pending effects %d\n",
		h.Machine.GetMachineId(), s.GetPhase(), s.GetActiveOperationId(), s.GetUnresolvedCommandId(), h.Pending)
	for _, o := range h.Operations {
		out += fmt.Sprintf("  operation %s %s %s stage=%s wait=%s next=%s error=%v %s–%s\n", o.GetOperationId(), o.GetType(),
			o.GetPhase(),
			o.GetCurrentStage(), o.GetWaitReason(), clockOf(o.GetNextLookAt()), o.GetError(), clockOf(o.GetCreatedAt()),
			clockOf(o.GetFinishedAt()))
	}
	for _, c := range h.Commands {
		out += fmt.Sprintf("  command %s of %s %s/%d %s %s by %s settled_by=%q created=%s sent=%s acked=%s granted=%s "+
			"deadline=%s finished=%s %s\n",
			c.GetCommandId(), c.GetOperationId(), c.GetStep(), c.GetAttempt(), c.GetState(), c.GetOutcome(),
			c.GetExecutorAgentId(),
			c.GetSettledBy(), clockOf(c.GetCreatedAt()), clockOf(c.GetSentAt()), clockOf(c.GetAckedAt()),
			clockOf(c.GetGrantedAt()),
			clockOf(c.GetDeadline()), clockOf(c.GetFinishedAt()), c.GetMessage())
	}
	for _, r := range slices.SortedStableFunc(slices.Values(h.Journal), byTime) {
		out += fmt.Sprintf("  world %s %s %s %s %s %s\n", r.At.Format(clockFormat), r.Stage, r.Kind, r.CommandID,
			cmp.Or(string(r.Fault), "-"), r.Detail)
	}
	return out
}

const clockFormat = "15:04:05.000"

type stamped interface{ AsTime() time.Time }

func clockOf(t stamped) string {
	at := t.AsTime()
	if at.Unix() == 0 {
		return "-"
	}
	return at.UTC().Format(clockFormat)
}
