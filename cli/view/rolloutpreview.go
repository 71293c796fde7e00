package view

import (
	"fmt"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// fewMachines of a wave are named where not all are asked for.
const fewMachines = 8

// RolloutPreview returns what a rollout would do. begin is the command that begins it; "" is `ingot rollout create`.
func (s Style) RolloutPreview(p *pb.RolloutPreview, all bool, begin string) string {
	var b strings.Builder
	for _, l := range p.GetStepLists() {
		fmt.Fprintf(&b, "Plan %s, machines: %d\n", Clean(l.GetPlanId()), l.GetMachines())
		for i, step := range l.GetSteps() {
			line := fmt.Sprintf("  %d. %s", i+1, Clean(step.GetName()))
			for _, d := range l.GetDestructiveSteps() {
				if d == step.GetName() {
					line += s.Bad("  loses data")
				}
			}
			b.WriteString(line + s.Dim(stepText(step)) + "\n")
		}
	}
	byWave := map[int32][]string{}
	for _, m := range p.GetMachines() {
		name := Clean(m.GetMachineId())
		if m.GetDomain() != "" {
			name += " (" + Clean(m.GetDomain()) + ")"
		}
		byWave[m.GetWave()] = append(byWave[m.GetWave()], name)
	}
	b.WriteString("\n")
	for _, w := range p.GetWaves() {
		fmt.Fprintf(&b, "Wave %d (%d): %s\n", w.GetWave(), w.GetTally().GetMachines(), listed(byWave[w.GetWave()], all))
	}
	if len(p.GetWaves()) == 0 {
		b.WriteString(s.Warn("No machine can be worked on.") + "\n")
	}
	b.WriteString(s.careOf(p.GetSpec()))
	if n := p.GetDefaultInFlight(); n > 0 {
		text := fmt.Sprintf("At most %d at a time", n)
		if p.GetDefaultPerRack() > 0 {
			text += fmt.Sprintf(" and %d in each rack", p.GetDefaultPerRack())
		}
		b.WriteString(s.Warn(text+": no budget limits interruptions. Set one, or --max-in-flight.") + "\n")
	}
	s.refused(&b, p)
	for _, u := range p.GetBudgets() {
		where := u.GetDomain()
		if u.GetValue() != "" {
			where += " " + u.GetValue()
		}
		b.WriteString(s.Warn(fmt.Sprintf("Budget %s (%s) has room for %d %s, the rollout would use %d: it will wait.",
			u.GetName(), Clean(where), u.GetLimit(), u.GetKind(), u.GetWanted())) + "\n")
	}
	b.WriteString(s.approvals(p.GetApprovalPolicies()))
	if p.GetDestructive() {
		b.WriteString(s.Bad("Data on these machines is lost.") + "\n")
	}
	for _, sentence := range p.GetNotAsked() {
		b.WriteString(s.Warn("Not known before: "+Clean(sentence)) + "\n")
	}
	fmt.Fprintf(&b, "\nDigest: %s\n", p.GetDigest())
	if begin == "" {
		begin = "the same flags to ingot rollout create, with --digest " + p.GetDigest()
	}
	if len(p.GetWaves()) > 0 {
		b.WriteString("To begin: " + begin + "\n")
	}
	return b.String()
}

// stepText returns the image of a step, or "".
func stepText(step *pb.Step) string {
	if image := step.GetRepave().GetImage(); image != "" {
		return "  " + Clean(image)
	}
	return ""
}

func listed(names []string, all bool) string {
	if all || len(names) <= fewMachines {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:fewMachines], ", ") + fmt.Sprintf(" and %d more (--all)", len(names)-fewMachines)
}

// careOf describes the limits of a rollout.
func (s Style) careOf(spec *pb.RolloutSpec) string {
	var parts []string
	if spec.GetMaxInFlight() > 0 {
		parts = append(parts, fmt.Sprintf("at most %d at a time", spec.GetMaxInFlight()))
	}
	if spec.GetDomain() != "" {
		parts = append(parts, fmt.Sprintf("at most %d per %s", spec.GetMaxPerDomain(),
			strings.TrimPrefix(spec.GetDomain(), "label:")))
	}
	parts = append(parts, gateText("of a wave", spec.GetWaveGate())...)
	parts = append(parts, gateText("in all", spec.GetTotalGate())...)
	if spec.GetSoakSeconds() > 0 {
		parts = append(parts, fmt.Sprintf("%d s of rest between waves", spec.GetSoakSeconds()))
	}
	if spec.GetRequireApproval() {
		parts = append(parts, "waits for a second person")
	}
	return "Care: " + strings.Join(parts, "; ") + "; then " + spec.GetOnGate() + "\n"
}

func gateText(of string, g *pb.RolloutGate) []string {
	var out []string
	if g.GetFailures() > 0 {
		out = append(out, fmt.Sprintf("stops at %d failures %s", g.GetFailures(), of))
	}
	if g.GetPercent() > 0 {
		out = append(out, fmt.Sprintf("stops at %d %% failures %s", g.GetPercent(), of))
	}
	return out
}

func (s Style) refused(b *strings.Builder, p *pb.RolloutPreview) {
	t := &Table{Header: []string{"REFUSED", "REASON", "MESSAGE"}}
	for _, m := range p.GetMachines() {
		if m.GetState() == pb.RolloutMachine_SKIPPED {
			t.Add(Clean(m.GetMachineId()), m.GetReason(), Clean(m.GetMessage()))
		}
	}
	if len(t.Rows) > 0 {
		b.WriteString("\n" + t.String())
	}
}
