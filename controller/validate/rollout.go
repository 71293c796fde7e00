package validate

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/budget"
)

const (
	maxWaves   = 50
	maxInWave  = 1_000_000
	maxSoak    = 7 * 24 * 3600
	maxTitle   = 200
	wholeFleet = 100
)

// Rollout checks a rollout's spec, but for its filter and its work, and returns it with its defaults filled in.
func Rollout(s *baremetalv1.RolloutSpec) (*baremetalv1.RolloutSpec, error) {
	if s == nil {
		return nil, Fault("spec", "required")
	}
	var f faults
	switch {
	case s.GetSelectionId() != "" && s.GetFilter() != "":
		f.add("spec.selection_id", "not together with filter")
	case s.GetSelectionId() == "" && s.GetFilter() == "":
		f.add(
			"spec.filter",
			"required without selection_id: name what to work on, such as site=berlin or rack=r42; a filter that "+
				"matches all is machine_id=*",
		)
	}
	f.add("spec.selection_id", text(s.GetSelectionId(), maxText))
	rolloutAction(&f, s)
	if s.GetSeedId() != "" {
		f.add("spec.seed_id", "set by the server; give the seed")
	}
	if s.GetSeed().GetHostname() != "" {
		f.add("spec.seed.hostname", "it fits one machine only; without it each is called by its machine_id")
	}
	if why := text(s.GetTitle(), maxTitle); why != "" {
		f.add("spec.title", why)
	}
	rolloutWaves(&f, s)
	rolloutDomain(&f, s)
	for path, g := range map[string]*baremetalv1.RolloutGate{"spec.wave_gate": s.GetWaveGate(),
		"spec.total_gate": s.GetTotalGate()} {
		if g.GetFailures() < 0 || g.GetFailures() > maxInWave {
			f.add(path+".failures", "0 for none, or how many failures close the gate")
		}
		if g.GetPercent() < 0 || g.GetPercent() > wholeFleet {
			f.add(path+".percent", "0 for none, or 1 to 100")
		}
	}
	if s.GetSoakSeconds() < 0 || s.GetSoakSeconds() > maxSoak {
		f.add("spec.soak_seconds", "0 to 604800, which is 7 days")
	}
	f.add("spec.on_gate", among(s.GetOnGate(), "", "pause", "cancel"))
	return filledRollout(s), f.err()
}

func rolloutAction(f *faults, s *baremetalv1.RolloutSpec) {
	switch s.GetAction() {
	case baremetalv1.RolloutSpec_ACTION_UNSPECIFIED:
	case baremetalv1.RolloutSpec_PROVISION, baremetalv1.RolloutSpec_ONBOARD, baremetalv1.RolloutSpec_DECOMMISSION:
		if s.GetType() != "" {
			f.add("spec.type", "not together with action")
		}
		if s.GetPlanId() != "" {
			f.add("spec.plan_id", "not together with action")
		}
	default:
		f.add("spec.action", "unknown")
	}
	starts := s.GetAction() == baremetalv1.RolloutSpec_ONBOARD || s.GetAction() == baremetalv1.RolloutSpec_DECOMMISSION
	if !starts && s.GetMode() != baremetalv1.Workflow_MODE_UNSPECIFIED {
		f.add("spec.mode", "only with action DECOMMISSION")
	}
	if !starts && s.GetEnterMaintenance() {
		f.add("spec.enter_maintenance", "only with action ONBOARD or DECOMMISSION")
	}
	if s.GetTest() != nil && s.GetAction() != baremetalv1.RolloutSpec_PROVISION {
		f.add("spec.test", "only with action PROVISION")
	}
	if s.GetTest() != nil && s.GetParams()[ParamAgentless] == "true" {
		f.add("spec.test", "not with agentless: the agent of the new system tests the hardware")
	}
	if starts && s.GetSeed() != nil {
		f.add("spec.seed", "only with a reimage or action PROVISION")
	}
}

func rolloutWaves(f *faults, s *baremetalv1.RolloutSpec) {
	if s.GetCanary() < 0 || s.GetCanary() > maxInWave {
		f.add("spec.canary", "0 for none, or the size of the first wave")
	}
	if s.GetMaxInFlight() < 0 || s.GetMaxInFlight() > maxInWave {
		f.add("spec.max_in_flight", "0 for the whole wave, or a positive number")
	}
	last := int32(0)
	for _, p := range s.GetPercents() {
		if p <= last || p > wholeFleet {
			f.add("spec.percents", "1 to 100, each larger than the one before")
			break
		}
		last = p
	}
	if len(s.GetPercents()) > maxWaves {
		f.add("spec.percents", "at most 50")
	}
}

func rolloutDomain(f *faults, s *baremetalv1.RolloutSpec) {
	key, label := strings.CutPrefix(s.GetDomain(), budget.LabelPrefix)
	switch {
	case label && !validLabelKey(key):
		f.add("spec.domain", "after label: stands the key of a label")
	case !label && s.GetDomain() != "" && s.GetDomain() != budget.Site:
		f.add("spec.domain", `"site" or "label:KEY", such as "label:rack"; empty spreads nothing`)
	}
	if s.GetMaxPerDomain() < 0 || s.GetMaxPerDomain() > maxInWave {
		f.add("spec.max_per_domain", "a positive number")
	}
	if s.GetMaxPerDomain() > 0 && s.GetDomain() == "" {
		f.add("spec.max_per_domain", "name the domain: site or label:KEY")
	}
}

// filledRollout is the spec as it is kept: the same request in other words has the same digest.
func filledRollout(s *baremetalv1.RolloutSpec) *baremetalv1.RolloutSpec {
	out := proto.Clone(s).(*baremetalv1.RolloutSpec)
	if out.GetDomain() != "" && out.GetMaxPerDomain() == 0 {
		out.MaxPerDomain = 1
	}
	if n := len(out.GetPercents()); n > 0 && out.GetPercents()[n-1] != wholeFleet {
		out.Percents = append(out.Percents, wholeFleet)
	}
	none := &baremetalv1.RolloutGate{}
	if proto.Equal(out.GetWaveGate(), none) || out.GetWaveGate() == nil {
		out.WaveGate = nil
	}
	if proto.Equal(out.GetTotalGate(), none) || out.GetTotalGate() == nil {
		out.TotalGate = nil
	}
	if out.GetWaveGate() == nil && out.GetTotalGate() == nil {
		out.TotalGate = &baremetalv1.RolloutGate{Failures: 1}
	}
	if out.GetOnGate() == "" {
		out.OnGate = "pause"
	}
	for k, v := range out.GetParams() {
		if v == "" {
			delete(out.Params, k)
		}
	}
	return out
}

// maxApproval bounds the machines of an approval policy.
const maxApproval = 1_000_000

// ApprovalPolicy checks a policy but for its selection. It returns INVALID_FIELD for all fields at once.
func ApprovalPolicy(p *baremetalv1.ApprovalPolicy) error {
	if p == nil {
		return Fault("policy", "required")
	}
	var f faults
	if !refForm.MatchString(p.GetName()) {
		f.add("policy.name", refRule)
	}
	if p.GetHarm() != baremetalv1.ApprovalPolicy_DESTROYS {
		f.add("policy.harm", "DESTROYS")
	}
	if p.GetMachines() < 0 || p.GetMachines() > maxApproval {
		f.add("policy.machines", "0 to "+strconv.Itoa(maxApproval))
	}
	if p.GetSetBy() != "" {
		f.add("policy.set_by", "set by the server")
	}
	return f.err()
}
