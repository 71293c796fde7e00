package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/node"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Nodes shows machines as nodes, in the same order.
func (s *Store) Nodes(ctx context.Context, machines []*baremetalv1.Machine) ([]*baremetalv1.Node, error) {
	idList := make([]string, 0, len(machines))
	for _, m := range machines {
		idList = append(idList, m.GetMachineId())
	}
	rows, err := s.db.Q.NodeRowsOf(ctx, idList)
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	rowOf := map[string]dbsqlc.Machine{}
	for _, r := range rows {
		rowOf[r.MachineID] = r
	}
	reports, err := s.db.Q.NodeReportsOf(ctx, idList)
	if err != nil {
		return nil, fmt.Errorf("read reports of nodes: %w", err)
	}
	reportOf := map[string]*baremetalv1.NodeReport{}
	for _, r := range reports {
		reportOf[r.MachineID] = reportMessage(r)
	}
	out := make([]*baremetalv1.Node, 0, len(machines))
	for _, m := range machines {
		n, err := s.nodeMessage(ctx, m, rowOf[m.GetMachineId()])
		if err != nil {
			return nil, err
		}
		n.LastReport = reportOf[m.GetMachineId()]
		out = append(out, n)
	}
	return out, nil
}

func (s *Store) nodeMessage(
	ctx context.Context, m *baremetalv1.Machine, row dbsqlc.Machine,
) (*baremetalv1.Node, error) {
	st := m.GetStatus()
	// A move is offered as a call with a comment, and with force where that is allowed; purge is for admins alone.
	f, err := nodestate.Move{To: node.Pending, Force: true, Comment: "given"}.FactsWithPlan(ctx, s.db.Q, row)
	if err != nil {
		return nil, err
	}
	f.ActiveOperation = pgtx.StrVal(row.CurrentOperationID)
	out := &baremetalv1.Node{
		NodeId: m.GetMachineId(), State: st.GetNodeState(), StateChangedAt: st.GetNodeStateChangedAt(),
		InstallAttempts: st.GetInstallAttempts(), LastInstallError: st.GetLastInstallError(), PlanId: pgtx.StrVal(row.PlanID),
		Group: m.GetSpec().GetGroup(), Machine: m, NextStates: recordMoves(st.GetNodeState(), f),
		QuarantineReason: row.QuarantineReason, QuarantinedFrom: node.Parse(row.QuarantinedFrom),
	}
	if nodestate.OnTheWayIn(row) {
		live := row.AgentID != nil
		if live {
			if live, err = nodestate.AgentLive(ctx, s.db.Q, row, s.db.Now()); err != nil {
				return nil, err
			}
		}
		checks, err := nodestate.HealthChecks(ctx, s.db.Q, row, live)
		if err != nil {
			return nil, err
		}
		out.FailingChecks = node.Failing(checks)
		for _, c := range checks {
			out.Checks = append(out.Checks, &baremetalv1.NodeCheck{Name: c.Name, State: string(c.State), Message: c.Message})
		}
	}
	return out, nil
}

// recordMoves lists the moves that start no work and that an admin may make now. Whether work may be started is asked
// for one node at a time: see mayMoves.
func recordMoves(from node.State, f node.Facts) []node.State {
	return slices.DeleteFunc(node.Open(from, node.Admin, f), func(to node.State) bool {
		t, _ := node.Find(from, to, node.Admin)
		return t.Work || f.ActiveOperation != "" && to != node.Quarantined
	})
}

func reportMessage(r dbsqlc.NodeReportsOfRow) *baremetalv1.NodeReport {
	return &baremetalv1.NodeReport{
		MacAddress: r.Mac, IpAddress: r.IpAddress, Hostname: r.Hostname, Vendor: r.Vendor, Model: r.Model,
		SerialNumber: r.SerialNumber, SystemUuid: r.SystemUuid, InstallationStatus: r.InstallationStatus,
		InstallationProgress: r.InstallationPercent, ReportedAt: convert.Timestamp(r.ReportedAt),
	}
}

// GetNode reads one node.
func (s *Store) GetNode(ctx context.Context, id string) (*baremetalv1.Node, error) {
	m, err := s.machines.Machine(ctx, id, "")
	if err != nil {
		return nil, err
	}
	all, err := s.Nodes(ctx, []*baremetalv1.Machine{m})
	if err != nil {
		return nil, err
	}
	all[0].NextStates, err = s.MayMoves(ctx, id)
	return all[0], err
}

// NodeUpdate sets the fields that are not nil.
type NodeUpdate struct {
	PlanID, Group *string
	// AdoptProviderState accepts the present state at the node's provider.
	AdoptProviderState bool
}

// UpdateNode sets a node's plan and group. The same again changes nothing.
func (s *Store) UpdateNode(
	ctx context.Context, id string, u NodeUpdate, actor string, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.Node, error) {
	_, err := s.machines.WithMachine(ctx, id, func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
		if m.DeletedAt != nil {
			_, refusal := node.Check(node.Deleted, node.Pending, node.Admin, node.Facts{})
			return nodestate.NodeRefused(m, refusal)
		}
		if err := pgtx.ConditionsOf(opts).Check("machine "+id, machinestore.MachineExists,
			pgtx.Stored{Exists: true, Version: m.Version}); err != nil {
			return err
		}
		data := map[string]string{}
		if u.PlanID != nil {
			data["plan_id"] = *u.PlanID
			if err := setNodePlan(ctx, q, id, *u.PlanID); err != nil {
				return err
			}
		}
		if u.Group != nil {
			data["group"] = *u.Group
			if err := s.setGroup(ctx, q, m, *u.Group); err != nil {
				return err
			}
		}
		if u.AdoptProviderState {
			var err error
			if data["adopted_provider_state"], err = nodestate.AdoptDrift(ctx, q, m, now); err != nil {
				return err
			}
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "UPDATE_NODE", Target: id, Data: data}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("update node: %w", err)
	}
	return s.GetNode(ctx, id)
}

// setNodePlan sets the plan of a node's reimages; empty leaves them to their type's default.
func setNodePlan(ctx context.Context, q *dbsqlc.Queries, machineID, planID string) error {
	if planID != "" {
		if _, err := catalogstore.GetPlan(ctx, q, planID); err != nil {
			return err
		}
	}
	if err := q.SetNodePlan(ctx, dbsqlc.SetNodePlanParams{MachineID: machineID, PlanID: pgtx.StrPtr(planID)}); err != nil {
		return fmt.Errorf("set the node's plan: %w", err)
	}
	return nil
}

func (s *Store) setGroup(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, group string) error {
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil {
		return err
	}
	spec.Group = group
	err = s.machines.SetFields(ctx, q, m, &baremetalv1.Machine{
		MachineId: m.MachineID, Labels: convert.JSONToMap(m.Labels), Spec: spec,
	})
	if err != nil {
		return fmt.Errorf("set the node's group: %w", err)
	}
	return nil
}

// NoChecks is the value in a request for a group without health checks.
const NoChecks = "none"

// checksOf reads the health checks of a request: nil for those that the group has, an empty list for none.
func checksOf(r *baremetalv1.SetNodeGroupRequest) []string {
	if slices.Equal(r.GetHealthChecks(), []string{NoChecks}) {
		return []string{}
	}
	return r.GetHealthChecks()
}

// SetNodeGroup sets the policy of a group, which the request names.
func (s *Store) SetNodeGroup(
	ctx context.Context, r *baremetalv1.SetNodeGroupRequest, actor string, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.NodeGroup, error) {
	group := r.GetGroup()
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		p := dbsqlc.UpsertNodeGroupParams{
			NodeGroup: group, AutoPromote: r.GetAutoPromote(), ExplicitPromotion: r.GetExplicitPromotion(), Now: now,
			HealthChecks: checksOf(r),
		}
		row, err := q.UpsertNodeGroup(ctx, p)
		if err != nil {
			return fmt.Errorf("store group: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Replacing("node group "+group, row.Version); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "SET_NODE_GROUP", Target: group,
			Data: map[string]string{
				"auto_promote": fmt.Sprint(r.GetAutoPromote()), "explicit_promotion": fmt.Sprint(r.GetExplicitPromotion()),
				"health_checks": strings.Join(row.HealthChecks, ","),
			}}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("set node group: %w", err)
	}
	all, err := s.ListNodeGroups(ctx, "", 0)
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		if g.GetGroup() == group {
			return g, nil
		}
	}
	return nil, errors.New("the group that was just stored is gone")
}

// ListNodeGroups reads groups by name, from a name on. A limit of 0 is none.
func (s *Store) ListNodeGroups(ctx context.Context, after string, limit int32) ([]*baremetalv1.NodeGroup, error) {
	if limit == 0 {
		limit = 1 << 30
	}
	rows, err := s.db.Lists(ctx).ListNodeGroups(ctx, dbsqlc.ListNodeGroupsParams{AfterName: after, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list node groups: %w", err)
	}
	out := make([]*baremetalv1.NodeGroup, 0, len(rows))
	for _, r := range rows {
		out = append(out, &baremetalv1.NodeGroup{
			Group: r.NodeGroup, AutoPromote: r.AutoPromote, ExplicitPromotion: r.ExplicitPromotion,
			UpdatedAt: convert.TimestampPtr(r.UpdatedAt), Nodes: int32(r.Nodes),
			IdentityLevel: r.IdentityLevel, Version: r.Version,
			HealthChecks: r.HealthChecks,
		})
	}
	return out, nil
}
