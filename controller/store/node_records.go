package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// Nodes shows machines as nodes, in the same order.
func (s *Store) Nodes(ctx context.Context, machines []*baremetalv1.Machine) ([]*baremetalv1.Node, error) {
	idList := make([]string, 0, len(machines))
	for _, m := range machines {
		idList = append(idList, m.GetMachineId())
	}
	plans, err := s.q.NodePlansOf(ctx, idList)
	if err != nil {
		return nil, fmt.Errorf("read plans of nodes: %w", err)
	}
	planOf := map[string]string{}
	for _, p := range plans {
		planOf[p.MachineID] = p.PlanID
	}
	reports, err := s.q.NodeReportsOf(ctx, idList)
	if err != nil {
		return nil, fmt.Errorf("read reports of nodes: %w", err)
	}
	reportOf := map[string]*baremetalv1.NodeReport{}
	for _, r := range reports {
		reportOf[r.MachineID] = reportMessage(r)
	}
	out := make([]*baremetalv1.Node, 0, len(machines))
	for _, m := range machines {
		n := nodeMessage(m)
		n.PlanId, n.LastReport = planOf[m.GetMachineId()], reportOf[m.GetMachineId()]
		out = append(out, n)
	}
	return out, nil
}

func nodeMessage(m *baremetalv1.Machine) *baremetalv1.Node {
	st := m.GetStatus()
	return &baremetalv1.Node{
		NodeId: m.GetMachineId(), State: st.GetNodeState(), StateChangedAt: st.GetNodeStateChangedAt(),
		InstallAttempts: st.GetInstallAttempts(), LastInstallError: st.GetLastInstallError(),
		Group: m.GetSpec().GetGroup(), Machine: m, NextStates: node.Targets(st.GetNodeState(), node.Admin),
	}
}

func reportMessage(r dbsqlc.NodeReportsOfRow) *baremetalv1.NodeReport {
	return &baremetalv1.NodeReport{
		MacAddress: r.Mac, IpAddress: r.IpAddress, Hostname: r.Hostname, Vendor: r.Vendor, Model: r.Model,
		SerialNumber: r.SerialNumber, SystemUuid: r.SystemUuid, InstallationStatus: r.InstallationStatus,
		InstallationProgress: r.InstallationPercent, ReportedAt: stamp(r.ReportedAt),
	}
}

// GetNode reads one node.
func (s *Store) GetNode(ctx context.Context, id string) (*baremetalv1.Node, error) {
	m, err := s.machine(ctx, id, "")
	if err != nil {
		return nil, err
	}
	all, err := s.Nodes(ctx, []*baremetalv1.Machine{m})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// NodeUpdate sets what is not nil.
type NodeUpdate struct {
	PlanID, Group *string
}

// UpdateNode sets a node's plan and group. The same again changes nothing.
func (s *Store) UpdateNode(ctx context.Context, id string, u NodeUpdate, actor string, now time.Time, opts ...WriteOption) (*baremetalv1.Node, error) {
	_, err := s.withMachine(ctx, id, func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
		if m.DeletedAt != nil {
			_, refusal := node.Check(node.Deleted, node.Pending, node.Admin, node.Facts{})
			return nodeRefused(m, refusal)
		}
		if err := conditionsOf(opts).check("machine "+id, machineExists, stored{true, m.Version}); err != nil {
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
			if err := setGroup(ctx, q, m, *u.Group); err != nil {
				return err
			}
		}
		return audit(ctx, q, auditEntry{actor: actor, verb: "UPDATE_NODE", target: id, data: data}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("update node: %w", err)
	}
	return s.GetNode(ctx, id)
}

// setNodePlan sets the plan of a node's reimages; empty leaves them to their type's default.
func setNodePlan(ctx context.Context, q *dbsqlc.Queries, machineID, planID string) error {
	if planID != "" {
		if _, err := getPlan(ctx, q, planID); err != nil {
			return err
		}
	}
	if err := q.SetNodePlan(ctx, dbsqlc.SetNodePlanParams{MachineID: machineID, PlanID: strPtr(planID)}); err != nil {
		return fmt.Errorf("set the node's plan: %w", err)
	}
	return nil
}

func setGroup(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, group string) error {
	spec, err := specFromJSON(m.Spec)
	if err != nil {
		return err
	}
	spec.Group = group
	raw, err := specToJSON(spec)
	if err != nil {
		return err
	}
	err = q.UpdateMachineSpec(ctx, dbsqlc.UpdateMachineSpecParams{
		MachineID: m.MachineID, ExternalID: m.ExternalID, Labels: m.Labels, Spec: raw,
	})
	if err != nil {
		return fmt.Errorf("set the node's group: %w", err)
	}
	return nil
}

// SetNodeGroup sets the policy of a group.
func (s *Store) SetNodeGroup(ctx context.Context, group string, autoPromote bool, actor string, now time.Time, opts ...WriteOption) (*baremetalv1.NodeGroup, error) {
	err := s.inTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		row, err := q.UpsertNodeGroup(ctx, dbsqlc.UpsertNodeGroupParams{NodeGroup: group, AutoPromote: autoPromote, Now: now})
		if err != nil {
			return fmt.Errorf("store group: %w", err)
		}
		if err := conditionsOf(opts).replacing("node group "+group, row.Version); err != nil {
			return err
		}
		return audit(ctx, q, auditEntry{
			actor: actor, verb: "SET_NODE_GROUP", target: group, data: map[string]string{"auto_promote": fmt.Sprint(autoPromote)},
		}, now)
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
	rows, err := s.lists(ctx).ListNodeGroups(ctx, dbsqlc.ListNodeGroupsParams{AfterName: after, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list node groups: %w", err)
	}
	out := make([]*baremetalv1.NodeGroup, 0, len(rows))
	for _, r := range rows {
		out = append(out, &baremetalv1.NodeGroup{
			Group: r.NodeGroup, AutoPromote: r.AutoPromote, UpdatedAt: stampPtr(r.UpdatedAt), Nodes: int32(r.Nodes), Version: r.Version,
		})
	}
	return out, nil
}
