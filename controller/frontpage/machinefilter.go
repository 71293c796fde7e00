package frontpage

import (
	"maps"
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/validate"
)

var machineKeys = validate.Keys{
	"phase":           validate.Among(enumNames(baremetalv1.MachineStatus_Phase_value, "")),
	"effective_state": validate.Among(effectiveNames()),
	"node_state":      validate.Among(nodeStateNames()),
	"provider":        validate.Any,
	"site":            validate.Any,
	"region":          validate.Any,
	"rack":            validate.Any,
	"group":           validate.Any,
	"machine_id":      validate.Any,
	"labels.":         validate.Label,
	"conditions.":     condition,
}

// enumNames are the names of a protobuf enum without its zero value and without their prefix.
func enumNames(values map[string]int32, prefix string) map[string]string {
	out := map[string]string{}
	for name, n := range values {
		if n != 0 {
			short := strings.TrimPrefix(name, prefix)
			out[short] = short
		}
	}
	return out
}

// effectiveNames has both names of one state: the enum cannot be called what people read.
func effectiveNames() map[string]string {
	out := enumNames(baremetalv1.MachineStatus_EffectiveState_value, "")
	out["MAINTENANCE"] = string(fleet.StateMaintenanceIdle)
	return out
}

func nodeStateNames() map[string]string {
	const prefix = "NODE_STATE_"
	out := map[string]string{}
	for short := range enumNames(baremetalv1.NodeState_value, prefix) {
		stored := strings.ToLower(short)
		out[stored], out[prefix+short] = stored, stored
	}
	return out
}

var conditionTypes = []fleet.ConditionType{
	fleet.Reachable, fleet.BMCReachable, fleet.Provisioned, fleet.InCustomerCluster, fleet.Drained, fleet.Degraded,
	fleet.NeedsIntervention, fleet.OperationCanceled, fleet.RMA, fleet.RetiredFlag, fleet.ProviderDrift,
}

func condition(typeAndValue string) (string, bool) {
	name, value, _ := strings.Cut(typeAndValue, "=")
	return value, slices.Contains(conditionTypes, fleet.ConditionType(name)) && (value == "true" || value == "false")
}

// machineQuery turns a filter into walks that together give what it matches, each machine once: none when its terms
// contradict each other.
func machineQuery(terms []validate.Term) []store.MachineFilter {
	all := []store.MachineFilter{{}}
	for _, t := range terms {
		var next []store.MachineFilter
		for _, f := range all {
			next = append(next, narrow(f, t)...)
		}
		all = next
	}
	return all
}

func narrow(f store.MachineFilter, t validate.Term) []store.MachineFilter {
	switch t.Key {
	case "phase":
		return narrowPhase(f, t.Value)
	case "effective_state":
		return narrowEffective(f, fleet.EffectiveState(t.Value))
	case "node_state":
		f.NodeState = t.Value
	case "provider":
		f.Provider = t.Value
	case "site":
		f.Site = t.Value
	case "region":
		f.Region = t.Value
	case "machine_id":
		f.MachineID = t.Value
	case "rack", "group":
		f.Spec = with(f.Spec, t.Key, t.Value)
	default:
		return []store.MachineFilter{narrowDotted(f, t)}
	}
	return []store.MachineFilter{f}
}

func narrowDotted(f store.MachineFilter, t validate.Term) store.MachineFilter {
	if key, ok := strings.CutPrefix(t.Key, "labels."); ok {
		f.Labels = with(f.Labels, key, t.Value)
		return f
	}
	name := strings.TrimPrefix(t.Key, "conditions.")
	if t.Value == "true" {
		return having(f, fleet.ConditionType(name))
	}
	return lacking(f, fleet.ConditionType(name))
}

// narrowPhase knows what the phases meant that are no longer stored.
func narrowPhase(f store.MachineFilter, phase string) []store.MachineFilter {
	switch phase {
	case "PROVISIONING":
		return agree(f, "", "true")
	case "IN_SERVICE":
		return []store.MachineFilter{having(f, fleet.InCustomerCluster)}
	case "RMA":
		return []store.MachineFilter{having(f, fleet.RMA)}
	case "RETIRED":
		return []store.MachineFilter{having(f, fleet.RetiredFlag)}
	}
	return agree(f, phase, "")
}

// narrowEffective is fleet.Effective read backwards.
func narrowEffective(f store.MachineFilter, s fleet.EffectiveState) []store.MachineFilter {
	if s == fleet.StateBlocked {
		return []store.MachineFilter{having(f, fleet.RMA), having(lacking(f, fleet.RMA), fleet.RetiredFlag)}
	}
	f = lacking(f, fleet.RMA, fleet.RetiredFlag)
	if s == fleet.StateAttention {
		return []store.MachineFilter{having(f, fleet.NeedsIntervention)}
	}
	f = lacking(f, fleet.NeedsIntervention)
	switch s {
	case fleet.StateBusy:
		return agree(f, "", "true")
	case fleet.StateMaintenanceIdle:
		return agree(f, string(fleet.Maintenance), "false")
	case fleet.StateNew:
		return agree(f, string(fleet.FactoryReady), "false")
	default:
		return agree(f, string(fleet.Ready), "false")
	}
}

// agree adds a phase and busyness; nothing can match when another is asked for already.
func agree(f store.MachineFilter, phase, busy string) []store.MachineFilter {
	if phase != "" && f.Phase != "" && f.Phase != phase || busy != "" && f.Busy != "" && f.Busy != busy {
		return nil
	}
	f.Phase, f.Busy = orElse(phase, f.Phase), orElse(busy, f.Busy)
	return []store.MachineFilter{f}
}

func having(f store.MachineFilter, types ...fleet.ConditionType) store.MachineFilter {
	f.With = appended(f.With, types)
	return f
}

func lacking(f store.MachineFilter, types ...fleet.ConditionType) store.MachineFilter {
	f.Without = appended(f.Without, types)
	return f
}

// appended copies: filters are narrowed into several.
func appended(list []string, types []fleet.ConditionType) []string {
	out := slices.Clone(list)
	for _, t := range types {
		out = append(out, string(t))
	}
	return out
}

func with(m map[string]string, k, v string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	out[k] = v
	return out
}
