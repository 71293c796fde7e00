// Package query turns the filter of a request into filters of the store.
package query

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/validate"
)

// MachineKeys are the keys of a filter of machines, and their values.
var MachineKeys = validate.Keys{
	"phase":           validate.Among(EnumNames(baremetalv1.MachineStatus_Phase_value, "")),
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

// EnumNames are the names of a protobuf enum without its zero value and without their prefix.
func EnumNames(values map[string]int32, prefix string) map[string]string {
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
	out := EnumNames(baremetalv1.MachineStatus_EffectiveState_value, "")
	out["MAINTENANCE"] = string(fleet.StateMaintenanceIdle)
	return out
}

func nodeStateNames() map[string]string {
	const prefix = "NODE_STATE_"
	out := map[string]string{}
	for short := range EnumNames(baremetalv1.NodeState_value, prefix) {
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

// MachineQuery turns a filter into walks that together give what it matches, each machine once: none when its terms
// contradict each other.
func MachineQuery(terms []validate.Term) []machinestore.MachineFilter {
	all := []machinestore.MachineFilter{{}}
	for _, t := range terms {
		var next []machinestore.MachineFilter
		for _, f := range all {
			next = append(next, narrow(f, t)...)
		}
		all = next
	}
	return all
}

func narrow(f machinestore.MachineFilter, t validate.Term) []machinestore.MachineFilter {
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
		return []machinestore.MachineFilter{narrowDotted(f, t)}
	}
	return []machinestore.MachineFilter{f}
}

func narrowDotted(f machinestore.MachineFilter, t validate.Term) machinestore.MachineFilter {
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
func narrowPhase(f machinestore.MachineFilter, phase string) []machinestore.MachineFilter {
	switch phase {
	case "PROVISIONING":
		f.Operating = "true"
		return one(f)
	case "IN_SERVICE":
		return []machinestore.MachineFilter{having(f, fleet.InCustomerCluster)}
	case "RMA":
		return []machinestore.MachineFilter{having(f, fleet.RMA)}
	case "RETIRED":
		return []machinestore.MachineFilter{having(f, fleet.RetiredFlag)}
	}
	return agree(f, phase, "")
}

// narrowEffective is fleet.Evaluate read backwards: walks that together give the machines in a state, each once.
func narrowEffective(f machinestore.MachineFilter, s fleet.EffectiveState) []machinestore.MachineFilter {
	gone := names(fleet.OutOfService())
	if s == fleet.StateBlocked {
		return slices.Concat(
			one(having(f, fleet.RMA)),
			one(having(lacking(f, fleet.RMA), fleet.RetiredFlag)),
			inStates(lacking(f, fleet.RMA, fleet.RetiredFlag), gone))
	}
	f = notInStates(lacking(f, fleet.RMA, fleet.RetiredFlag), gone)
	others := notInStates(lacking(f, fleet.NeedsIntervention), names(fleet.NeedsPerson()))
	if s == fleet.StateAttention {
		return slices.Concat(
			one(having(f, fleet.NeedsIntervention)),
			inStates(lacking(f, fleet.NeedsIntervention), names(fleet.NeedsPerson())),
			one(fenced(others, "true")),
			lacksSomething(others))
	}
	return narrowQuiet(fenced(others, "false"), s)
}

// narrowQuiet goes on with machines that need nobody at once.
func narrowQuiet(f machinestore.MachineFilter, s fleet.EffectiveState) []machinestore.MachineFilter {
	switch s {
	case fleet.StateBusy:
		out := agree(f, "", "true")
		for _, idle := range agree(f, "", "false") {
			out = append(out, inStates(idle, names(fleet.WorkInProgress()))...)
		}
		return out
	case fleet.StateMaintenanceIdle:
		return agree(resting(f), string(fleet.Maintenance), "false")
	case fleet.StateNew:
		return agree(resting(f), string(fleet.FactoryReady), "false")
	}
	var out []machinestore.MachineFilter
	for _, f := range inStates(f, []string{string(fleet.Active)}) {
		out = append(out, agree(having(f, fleet.Provisioned, fleet.Reachable), string(fleet.Ready), "false")...)
	}
	return out
}

// lacksSomething gives the machines in phase READY that are free and lack what they need to be IDLE.
func lacksSomething(f machinestore.MachineFilter) []machinestore.MachineFilter {
	var out []machinestore.MachineFilter
	for _, f := range agree(resting(fenced(f, "false")), string(fleet.Ready), "false") {
		out = append(out, notInStates(f, []string{string(fleet.Active)}))
		for _, active := range inStates(f, []string{string(fleet.Active)}) {
			out = append(out, lacking(active, fleet.Provisioned), lacking(having(active, fleet.Provisioned), fleet.Reachable))
		}
	}
	return out
}

// resting leaves out the node states that stand for work in progress.
func resting(f machinestore.MachineFilter) machinestore.MachineFilter {
	return notInStates(f, names(fleet.WorkInProgress()))
}

func names(states []fleet.NodeState) []string {
	out := make([]string, 0, len(states))
	for _, s := range states {
		out = append(out, string(s))
	}
	return out
}

func one(f machinestore.MachineFilter) []machinestore.MachineFilter {
	return []machinestore.MachineFilter{f}
}

// inStates keeps machines in one of the node states; nothing can match when none of them is left.
func inStates(f machinestore.MachineFilter, states []string) []machinestore.MachineFilter {
	if len(f.NodeStates) > 0 {
		states = slices.DeleteFunc(slices.Clone(states), func(s string) bool { return !slices.Contains(f.NodeStates, s) })
	}
	if len(states) == 0 {
		return nil
	}
	f.NodeStates = states
	return one(f)
}

func notInStates(f machinestore.MachineFilter, states []string) machinestore.MachineFilter {
	f.NotNodeStates = slices.Concat(f.NotNodeStates, states)
	return f
}

// fenced keeps machines that have a command of unknown outcome, or that have none.
func fenced(f machinestore.MachineFilter, value string) machinestore.MachineFilter {
	f.Fenced = value
	return f
}

// agree adds a phase and busyness; nothing can match when another is asked for already.
func agree(f machinestore.MachineFilter, phase, busy string) []machinestore.MachineFilter {
	if phase != "" && f.Phase != "" && f.Phase != phase || busy != "" && f.Busy != "" && f.Busy != busy {
		return nil
	}
	f.Phase, f.Busy = cmp.Or(phase, f.Phase), cmp.Or(busy, f.Busy)
	return []machinestore.MachineFilter{f}
}

func having(f machinestore.MachineFilter, types ...fleet.ConditionType) machinestore.MachineFilter {
	f.With = appended(f.With, types)
	return f
}

func lacking(f machinestore.MachineFilter, types ...fleet.ConditionType) machinestore.MachineFilter {
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
