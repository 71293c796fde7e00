package view

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/times"

	"github.com/ingot-metal/ingot/internal/erasure"
)

// Timeline are the columns of `ingot timeline`.
func (s Style) Timeline(e *pb.TimelineEntry) (cells, wide []Cell) {
	return []Cell{
		{"SEQ", strconv.FormatInt(e.GetSeq(), 10)}, {"TIME", Time(e.GetTs())}, {"KIND", e.GetKind()},
		{"ACTOR", Clean(e.GetActor())}, {"OPERATION_ID", e.GetOperationId()}, {"SUMMARY", Clean(e.GetSummary())},
	}, nil
}

// StateThen is the sheet of a machine as it was at a time.
func (s Style) StateThen(machine string, at *timestamppb.Timestamp, st *pb.TimelineState) string {
	f := &Fields{}
	f.Add("Machine", machine)
	f.Add("At", Time(at))
	if st == nil {
		f.Add("State", "it had no history then")
		return f.String()
	}
	f.Add("LastChange", Time(st.GetTs())+" (entry "+strconv.FormatInt(st.GetSeq(), 10)+")")
	f.Add("Phase", st.GetStatus().GetPhase().String())
	f.Add("State", strings.TrimSuffix(st.GetStatus().GetEffectiveState().String(), "_IDLE"))
	f.Add("NodeState", strings.ToLower(strings.TrimPrefix(st.GetStatus().GetNodeState().String(), "NODE_STATE_")))
	if st.GetDeleted() {
		f.Add("Deleted", "yes")
	}
	for _, c := range st.GetStatus().GetConditions() {
		if c.GetStatus() {
			f.Add(c.GetType(), joinNonEmpty("since "+Time(c.GetLastTransition()), Clean(c.GetReason()), Clean(c.GetMessage())))
		}
	}
	f.Add("Unresolved", st.GetStatus().GetUnresolvedCommandId())
	if st.GetOperationId() != "" {
		f.Add("Operation", joinNonEmpty(st.GetOperationId(), st.GetOperationType()+" "+st.GetOperationPhase(),
			st.GetOperationStage(), st.GetOperationWaitReason()))
	}
	for _, id := range slices.Sorted(maps.Keys(st.GetOpenCommands())) {
		f.Add("Command", id+" "+st.GetOpenCommands()[id])
	}
	if st.GetWorkflowId() != "" {
		what := strings.TrimSpace(st.GetWorkflowKind() + " " + st.GetWorkflowMode())
		f.Add("Workflow", joinNonEmpty(st.GetWorkflowId(), what, st.GetWorkflowState(), "stage "+st.GetWorkflowStage(),
			st.GetWorkflowFailureClass(), Clean(st.GetWorkflowMessage())))
	}
	for _, name := range slices.Sorted(maps.Keys(st.GetStepMessages())) {
		f.Add("Step", joinNonEmpty(name+" "+st.GetStepStates()[name], Clean(st.GetStepMessages()[name])))
	}
	return f.String()
}

func joinNonEmpty(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return strings.TrimSpace(s) == "" }), ", ")
}

// Verdicts returns the findings of `ingot audit verify`: the histories to show, then one line about all of them.
func (s Style) Verdicts(all, shown []*pb.TimelineVerdict, bad int) string {
	var b strings.Builder
	if len(shown) > 0 {
		t := &Table{Header: []string{"MACHINE", "ENTRIES", "HEAD", "OK", "FOUND"}}
		for _, v := range shown {
			t.Add(historyName(v), strconv.FormatInt(v.GetEntries(), 10), fmt.Sprintf("%.12x", v.GetHeadHash()), s.verdictMark(v),
				Clean(found(v)))
		}
		b.WriteString(t.String())
	}
	var entries int64
	for _, v := range all {
		entries += v.GetEntries()
	}
	fmt.Fprintf(&b, "%d histories with %d entries verified, %d at fault\n", len(all), entries, bad)
	return b.String()
}

func historyName(v *pb.TimelineVerdict) string {
	if v.GetMachineId() == "" {
		return "(fleet)"
	}
	return v.GetMachineId()
}

func (s Style) verdictMark(v *pb.TimelineVerdict) string {
	if v.GetOk() {
		return "yes"
	}
	return s.Warn("no")
}

func found(v *pb.TimelineVerdict) string {
	if v.GetBrokenSeq() != 0 {
		return fmt.Sprintf("entry %d %s", v.GetBrokenSeq(), v.GetBrokenWhy())
	}
	return strings.Join(v.GetDifferences(), "; ")
}

// Erasure shows the statement of an erasure certificate, once it is proven.
func (s Style) Erasure(c erasure.Statement) string {
	identity := c.Work.IdentityLevel
	if identity == "" {
		identity = "-"
	}
	if c.Work.Trust != "" {
		identity += ", " + c.Work.Trust
	}
	var b strings.Builder
	if c.Machine.Simulated {
		fmt.Fprintf(&b, "%s\n", s.Bad("SIMULATED: there is no such machine, and nothing was erased"))
	}
	fmt.Fprintf(&b, "%s: signed by controller %s of this installation at %s\n\n", s.Good("genuine"), Clean(c.IssuedBy),
		times.TimeOf(c.IssuedAt))
	for _, line := range [][2]string{
		{"Machine", c.Machine.ID}, {"External id", c.Machine.ExternalID}, {"Serial number", c.Machine.Serial},
		{"Operation", c.Work.ID + " (" + c.Work.Type + ")"}, {"Ended", times.TimeOf(c.Work.EndedAt)},
		{"Erased by", c.Work.Installer}, {"Identity", identity},
		{"History", fmt.Sprintf("%d entries, head %s", c.History.Entries, c.History.Head)},
	} {
		if line[1] != "" {
			fmt.Fprintf(&b, "%-14s %s\n", line[0], Clean(line[1]))
		}
	}
	for _, d := range c.Disks {
		fmt.Fprintf(&b, "\n%s\n  erased by     %s, in %s\n  read back     %s\n", s.Bold(Clean(d.ID)),
			Clean(d.Method), time.Duration(d.Seconds*float64(time.Second)).Round(time.Second), Clean(d.Verification))
		for _, more := range [][2]string{{"not used", d.NotUsed}, {"hidden areas", d.Hidden}, {"notes", d.Notes}} {
			if more[1] != "" {
				fmt.Fprintf(&b, "  %-13s %s\n", more[0], Clean(more[1]))
			}
		}
	}
	return b.String()
}
