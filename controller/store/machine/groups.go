package machine

import (
	"context"
	"fmt"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Counter selects the machines to count, and the fields to group by.
type Counter struct {
	// Filter narrows by texts alone.
	Filter MachineFilter
	// Values are the texts that the groups differ in: machine_id, image, labels.KEY, or a field of the spec by proto name.
	Values []string
	// Facts has groups differ in phase, node state, and current work; Conditions in these conditions, too: a type stands
	// for true, and one behind UnknownPrefix for unknown.
	Facts      bool
	Conditions []string
	// MaxRows bounds the groups.
	MaxRows int32
}

// UnknownPrefix stands before the type of a condition that is unknown.
const UnknownPrefix = "?"

// Counted is how many machines are alike.
type Counted struct {
	Values []string
	// Like has of such a machine what its state is made of.
	Like     *baremetalv1.Machine
	Machines int
}

// CountAlike counts machines by one statement. asOf is a time of the database: what was committed before is counted.
func (s *Store) CountAlike(ctx context.Context, c Counter) (groups []Counted, asOf time.Time, err error) {
	f := c.Filter
	labels, err := pgtx.JSONMap(f.Labels)
	if err != nil {
		return nil, asOf, err
	}
	spec, err := pgtx.JSONMap(f.Spec)
	if err != nil {
		return nil, asOf, err
	}
	keys, regexps := f.Regexps(false)
	notKeys, notRegexps := f.Regexps(true)
	rows, err := s.db.CustomPlan().CountByValues(ctx, dbsqlc.CountByValuesParams{
		GroupBy:    pgtx.NonNil(c.Values),
		Facts:      c.Facts,
		Conditions: pgtx.NonNil(c.Conditions),
		MaxRows:    c.MaxRows,
		Among: pgtx.NonNil(
			f.MachineIDs,
		),
		Provider:   f.Provider,
		Site:       f.Site,
		Region:     f.Region,
		Rack:       f.Rack,
		Labels:     labels,
		Spec:       spec,
		Keys:       keys,
		Regexps:    regexps,
		NotKeys:    notKeys,
		NotRegexps: notRegexps,
	})
	if err != nil {
		return nil, asOf, fmt.Errorf("count machines: %w", err)
	}
	for _, r := range rows {
		if r.Machines == 0 {
			asOf = r.AsOf
			continue
		}
		groups = append(groups, Counted{Values: r.GroupValues, Like: alike(r, c.Conditions), Machines: int(r.Machines)})
	}
	return groups, asOf, nil
}

// Facts are what the state of machines is made of that are alike.
type Facts struct {
	Phase, NodeState                         string
	Operating, InWorkflow, Fenced, Agentless bool
	// Conditions has a bit for each condition that was asked for and is true; Why is the reason of NeedsIntervention.
	Conditions int32
	Why        string
}

func alike(r dbsqlc.CountByValuesRow, conditions []string) *baremetalv1.Machine {
	return Facts{
		Phase: r.Phase, NodeState: r.NodeState, Operating: r.Operating, InWorkflow: r.InWorkflow, Fenced: r.Fenced,
		Conditions: r.Conditions,
	}.Like(conditions)
}

// Like is a machine of which only what its state is made of is known, and its state.
func (r Facts) Like(conditions []string) *baremetalv1.Machine {
	f := fleet.Facts{
		Phase: fleet.Phase(r.Phase), NodeState: fleet.NodeState(r.NodeState), ActiveOperation: r.Operating,
		ActiveWorkflow: r.InWorkflow, Agentless: r.Agentless, Conditions: map[fleet.ConditionType]bool{},
		Intervention: fleet.Attention{Reason: r.Why},
	}
	st := &baremetalv1.MachineStatus{
		Phase:     baremetalv1.MachineStatus_Phase(baremetalv1.MachineStatus_Phase_value[r.Phase]),
		NodeState: convert.NodeStateMessage(r.NodeState),
	}
	if r.Operating {
		st.ActiveOperationId = "some"
	}
	if r.Fenced {
		f.UnresolvedCommand = "some"
	}
	for i, c := range conditions {
		if r.Conditions&(1<<i) == 0 {
			continue
		}
		if t, unknown := strings.CutPrefix(c, UnknownPrefix); unknown {
			f.Unknown = map[fleet.ConditionType]bool{fleet.ConditionType(t): true}
			st.Conditions = append(st.Conditions, &baremetalv1.Condition{Type: t})
			continue
		}
		f.Conditions[fleet.ConditionType(c)] = true
		st.Conditions = append(st.Conditions, &baremetalv1.Condition{Type: c, Status: true, Known: true})
	}
	state, attention := fleet.Evaluate(f)
	st.EffectiveState = baremetalv1.MachineStatus_EffectiveState(
		baremetalv1.MachineStatus_EffectiveState_value[string(state)])
	st.AttentionReason = attention.Reason
	return &baremetalv1.Machine{Status: st}
}
