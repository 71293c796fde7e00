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
	"github.com/ingot-metal/ingot/internal/filter"
	"github.com/ingot-metal/ingot/internal/label"
)

// Machines is the language of a filter of machines. The key rack reads the field of the spec, or else the
// label; labels.rack reads the label alone.
var Machines = validate.Query{
	Keys: validate.Keys{
		"phase":           validate.Among(EnumNames(baremetalv1.MachineStatus_Phase_value, "")),
		"effective_state": validate.Among(effectiveNames()),
		"node_state":      validate.Among(nodeStateNames()),
		"provider":        validate.Any,
		"site":            validate.Any,
		"region":          validate.Any,
		"rack":            validate.Any,
		"group":           validate.Any,
		"location":        validate.Any,
		"serial":          validate.Any,
		"cluster":         validate.Any,
		"machine_id":      validate.Any,
		"image":           validate.Any,
		"labels.":         validate.Label,
		"conditions.":     condition,
		// Of the reasons why a machine needs an operator, the one that machines share.
		"attention_reason": validate.Among(map[string]string{fleet.AttentionNotObserved: fleet.AttentionNotObserved}),
	},
	Aliases: map[string]string{"state": "effective_state", "label.": "labels.", "condition.": "conditions."},
	Text: []string{
		"provider", "site", "region", "rack", "group", "location", "serial", "cluster", "machine_id", "image", "labels.",
	},
}

// specField is the field of the spec that a key stands for.
func specField(key string) string {
	if key == "cluster" {
		return "target_cluster_ref"
	}
	return key
}

// EnumNames returns the names of a protobuf enum without its zero value, with and without their prefix. Each maps to
// its name without prefix.
func EnumNames(values map[string]int32, prefix string) map[string]string {
	out := map[string]string{}
	for name, n := range values {
		if n != 0 {
			short := strings.TrimPrefix(name, prefix)
			out[short], out[name] = short, short
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
	for name, short := range EnumNames(baremetalv1.NodeState_value, prefix) {
		out[name] = strings.ToLower(short)
	}
	return out
}

// conditionValues are what a filter takes of a condition. Each machine has one of them: true where the status is, also
// of a fault that is no longer observed; false where it is known to be; else unknown.
var conditionValues = []string{"true", "false", "unknown"}

func condition(typeAndValue string) (string, bool) {
	name, value, _ := strings.Cut(typeAndValue, "=")
	_, _, known := fleet.Aging(fleet.ConditionType(name))
	return value, known && slices.Contains(conditionValues, value)
}

// MachineQuery turns a filter into walks that together give what it matches, each machine once: none when its terms
// contradict each other.
func MachineQuery(terms []filter.Term) []machinestore.MachineFilter {
	all := inEffective(machinestore.MachineFilter{}, terms)
	for _, t := range terms {
		if t.Key == "effective_state" {
			continue
		}
		var next []machinestore.MachineFilter
		for _, f := range all {
			next = append(next, narrow(f, t)...)
		}
		all = next
	}
	return all
}

// inEffective narrows by all terms of the effective state at once: its states overlap with each other's parts.
func inEffective(f machinestore.MachineFilter, terms []filter.Term) []machinestore.MachineFilter {
	states := fleet.EffectiveStates()
	for _, t := range terms {
		if t.Key == "effective_state" {
			states = slices.DeleteFunc(states, func(s fleet.EffectiveState) bool { return !t.Holds(string(s), true) })
		}
	}
	if len(states) == len(fleet.EffectiveStates()) {
		return one(f)
	}
	var out []machinestore.MachineFilter
	for _, s := range states {
		out = append(out, narrowEffective(f, s)...)
	}
	return out
}

func narrow(f machinestore.MachineFilter, t filter.Term) []machinestore.MachineFilter {
	if IsText(t.Key) {
		return one(narrowText(f, t))
	}
	if t.Not {
		return without(one(f), t.Key, t.Values)
	}
	var out []machinestore.MachineFilter
	for i, v := range t.Values {
		// Without the values before it, so that no machine is in two walks.
		for _, rest := range without(one(f), t.Key, t.Values[:i]) {
			out = append(out, narrowState(rest, t.Key, v.Text)...)
		}
	}
	return out
}

// columns are keys that are no field of the spec in a filter of the store.
var columns = []string{"machine_id", "provider", "site", "region", "image", label.Rack}

func isSet(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

// narrowText narrows by free text: by an index where one value is asked for, else by a pattern. A key that is there
// already, as where a filter is laid over another one, gets a pattern beside it.
func narrowText(f machinestore.MachineFilter, t filter.Term) machinestore.MachineFilter {
	value, exact := t.Exact()
	name, isLabel := strings.CutPrefix(t.Key, "labels.")
	switch {
	case t.Key == "machine_id" && !t.Not && f.MachineIDs == nil && !slices.ContainsFunc(t.Values, filter.Value.IsPrefix):
		for _, v := range t.Values {
			f.MachineIDs = append(f.MachineIDs, v.Text)
		}
	case exact && isLabel && !isSet(f.Labels, name):
		f.Labels = with(f.Labels, name, value)
	case exact && value != "" && t.Key == "provider" && f.Provider == "":
		f.Provider = value
	case exact && value != "" && t.Key == "site" && f.Site == "":
		f.Site = value
	case exact && value != "" && t.Key == "region" && f.Region == "":
		f.Region = value
	case exact && value != "" && t.Key == label.Rack && f.Rack == "":
		f.Rack = value
	case exact && !isLabel && !slices.Contains(columns, t.Key) && !isSet(f.Spec, specField(t.Key)):
		f.Spec = with(f.Spec, specField(t.Key), value)
	default:
		f.Patterns = append(slices.Clone(f.Patterns), machinestore.Pattern{Key: specField(t.Key), Not: t.Not,
			Regexp: t.Regexp()})
	}
	return f
}

// without leaves out the machines of which a state has one of the values.
func without(all []machinestore.MachineFilter, key string, values []filter.Value) []machinestore.MachineFilter {
	for _, v := range values {
		var next []machinestore.MachineFilter
		for _, f := range all {
			next = append(next, notInState(f, key, v.Text)...)
		}
		all = next
	}
	return all
}

// narrowState narrows by a key that has few values.
func narrowState(f machinestore.MachineFilter, key, value string) []machinestore.MachineFilter {
	switch key {
	case "phase":
		return narrowPhase(f, value)
	case "node_state":
		return inStates(f, []string{value})
	case "attention_reason":
		return notObserved(f, "true")
	}
	name := fleet.ConditionType(strings.TrimPrefix(key, "conditions."))
	switch value {
	case "true":
		return one(having(f, name))
	case "unknown":
		f.Unknown = appended(f.Unknown, []fleet.ConditionType{name})
		return one(f)
	}
	return one(knowing(lacking(f, name), name))
}

// knowing leaves out machines of which a condition is unknown.
func knowing(f machinestore.MachineFilter, t fleet.ConditionType) machinestore.MachineFilter {
	f.NotUnknown = appended(f.NotUnknown, []fleet.ConditionType{t})
	return f
}

// notObserved keeps machines that need an operator only because nothing observes them, or leaves those out.
func notObserved(f machinestore.MachineFilter, value string) []machinestore.MachineFilter {
	if f.NotObserved != "" && f.NotObserved != value {
		return nil
	}
	f.NotObserved = value
	return one(f)
}

// notInState is narrowState of all other values.
func notInState(f machinestore.MachineFilter, key, value string) []machinestore.MachineFilter {
	switch key {
	case "phase":
		return notInPhase(f, value)
	case "node_state":
		return one(notInStates(f, []string{value}))
	case "attention_reason":
		return notObserved(f, "false")
	}
	name := fleet.ConditionType(strings.TrimPrefix(key, "conditions."))
	switch value {
	case "true":
		return one(lacking(f, name))
	case "unknown":
		return one(knowing(f, name))
	}
	return append(narrowState(f, key, "true"), narrowState(f, key, "unknown")...)
}

// notInPhase is narrowPhase of all other machines.
func notInPhase(f machinestore.MachineFilter, phase string) []machinestore.MachineFilter {
	switch phase {
	case "PROVISIONING":
		if f.Operating == "true" {
			return nil
		}
		f.Operating = "false"
		return one(f)
	case "IN_SERVICE":
		return one(lacking(f, fleet.InCustomerCluster))
	case "RMA":
		return one(lacking(f, fleet.RMA))
	case "RETIRED":
		return one(lacking(f, fleet.RetiredFlag))
	}
	var out []machinestore.MachineFilter
	for _, other := range []fleet.Phase{fleet.FactoryReady, fleet.Ready, fleet.Maintenance} {
		if string(other) != phase {
			out = append(out, agree(f, string(other), "")...)
		}
	}
	return out
}

// narrowPhase knows what the phases meant that are no longer stored.
func narrowPhase(f machinestore.MachineFilter, phase string) []machinestore.MachineFilter {
	switch phase {
	case "PROVISIONING":
		if f.Operating == "false" {
			return nil
		}
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

// narrowQuiet goes on with machines that need no operator at once.
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

// lacksSomething returns the machines in phase READY that are free and lack what they need to be IDLE.
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
