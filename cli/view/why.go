package view

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Explain is the sheet of `ingot why`: the answer, then what it is made of, then what may be done.
func (s Style) Explain(e *pb.ExplainMachineResponse) string {
	var b strings.Builder
	b.WriteString(s.Bold(Clean(e.GetSummary())) + "\n")
	if e.GetStuck() {
		b.WriteString(s.Warn("stuck: it runs far longer than such a step does, and nothing automatic will end it soon") +
			"\n")
	}
	b.WriteString("\n" + s.explainFields(e).String())
	if len(e.GetFacts()) > 0 {
		b.WriteString("\nWhat this is read from:\n")
		for _, fact := range e.GetFacts() {
			b.WriteString("  - " + Clean(fact) + "\n")
		}
	}
	s.explainActions(&b, e.GetActions())
	return b.String()
}

// Explained is the list of `ingot why --filter`: of each machine the answer, who can cure it, and what may be done.
func (s Style) Explained(all []*pb.ExplainedMachine) string {
	var b strings.Builder
	for i, m := range all {
		if i > 0 {
			b.WriteString("\n")
		}
		e := m.GetExplanation()
		b.WriteString(s.Bold(e.GetMachineId()) + "  " + s.effective(m.GetMachine().GetStatus().GetEffectiveState()) + "  " +
			Clean(e.GetSummary()) + "\n")
		f := &Fields{}
		f.Add("  Reason", e.GetReason())
		f.Add("  WaitsOn", waitsLine(e))
		f.Add("  Since", timeAgo(e.GetSince(), s.Now))
		b.WriteString(f.String())
		for _, a := range e.GetActions() {
			mark := " "
			if a.GetDestructive() {
				mark = s.Bad("!")
			}
			b.WriteString("  " + mark + " " + s.Bold(Clean(a.GetCommand())) + "\n")
		}
	}
	return b.String()
}

func (s Style) explainFields(e *pb.ExplainMachineResponse) *Fields {
	f := &Fields{}
	f.Add("Machine", e.GetMachineId())
	f.Add("Operation", e.GetOperationId())
	f.Add("Step", stepLine(e))
	f.Add("Reason", e.GetReason())
	f.Add("WaitsOn", waitsLine(e))
	f.Add("Since", timeAgo(e.GetSince(), s.Now))
	f.Add("Normal", normalLine(e, s.Now))
	f.Add("Next", nextLine(e, s.Now))
	f.Add("LastEvidence", evidenceLine(e, s.Now))
	return f
}

func stepLine(e *pb.ExplainMachineResponse) string {
	if e.GetStepKind() == "" || e.GetStepKind() == e.GetStep() {
		return e.GetStep()
	}
	return e.GetStep() + " (" + e.GetStepKind() + ")"
}

func waitsLine(e *pb.ExplainMachineResponse) string {
	if e.GetWaitsFor() == "" {
		return e.GetWaitsOn()
	}
	return e.GetWaitsOn() + ": " + Clean(e.GetWaitsFor())
}

// normalLine sets the step's time against the times of its kind.
func normalLine(e *pb.ExplainMachineResponse, now time.Time) string {
	if e.GetStepSamples() == 0 {
		return ""
	}
	text := fmt.Sprintf("half take up to %s, 95%% up to %s (%d steps, %s)", seconds(e.GetStepP50Seconds()),
		seconds(e.GetStepP95Seconds()),
		e.GetStepSamples(), Clean(e.GetStepPopulation()))
	if e.GetStepStartedAt() != nil {
		text += "; this one runs " + Age(e.GetStepStartedAt(), now)
	}
	return text
}

func seconds(n float64) string { return Duration(time.Duration(n * float64(time.Second))) }

func nextLine(e *pb.ExplainMachineResponse, now time.Time) string {
	text := Clean(e.GetNextAction())
	if at := e.GetNextActionAt(); text != "" && at != nil {
		text += ", at " + Time(at)
		if left := at.AsTime().Sub(now); left > 0 {
			text += " (in " + Duration(left.Truncate(time.Second)) + ")"
		}
	}
	return text
}

func evidenceLine(e *pb.ExplainMachineResponse, now time.Time) string {
	text := Clean(e.GetLastEvidence())
	if e.GetLastEvidenceAt() != nil && text != "" {
		text += ", " + timeAgo(e.GetLastEvidenceAt(), now)
	}
	return text
}

// timeAgo is a time, and how long ago that was.
func timeAgo(ts *timestamppb.Timestamp, now time.Time) string {
	if ts == nil {
		return ""
	}
	return Time(ts) + " (" + Age(ts, now) + " ago)"
}

// explainActions lists what may be done.
func (s Style) explainActions(b *strings.Builder, actions []*pb.OperatorAction) {
	if len(actions) == 0 {
		return
	}
	b.WriteString("\nYou can:\n")
	for _, a := range actions {
		mark := " "
		if a.GetDestructive() {
			mark = s.Bad("!")
		}
		b.WriteString(" " + mark + " " + s.Bold(Clean(a.GetCommand())) + "\n      " + Clean(a.GetConsequence()) + "\n")
	}
}
