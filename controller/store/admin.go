package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/internal/failure"
)

// withMachine runs fn with the machine locked, and returns the machine as it is afterwards.
func (s *Store) withMachine(ctx context.Context, id string, fn func(q *dbsqlc.Queries, m dbsqlc.Machine) error) (*baremetalv1.Machine, error) {
	err := s.inTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := q.LockMachine(ctx, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return machineNotFound(id)
		}
		if err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		return fn(q, m)
	})
	if err != nil {
		return nil, err
	}
	return s.machine(ctx, id, "")
}

// Settle lifts a fence on an operator's word. The command must be the machine's unresolved one.
func (s *Store) Settle(ctx context.Context, machineID, commandID, verdict, actor, comment string, now time.Time) (*baremetalv1.Machine, error) {
	return s.withMachine(ctx, machineID, func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
		if m.UnresolvedCommandID == nil {
			return failure.Precondition("NOTHING_TO_SETTLE", "machine %s has no unresolved command", machineID)
		}
		if *m.UnresolvedCommandID != commandID {
			return failure.Precondition("NOTHING_TO_SETTLE", "the unresolved command is %s, not %s", *m.UnresolvedCommandID, commandID).
				WithField("command_id", "not the machine's unresolved command")
		}
		row, err := q.GetCommand(ctx, commandID)
		if err != nil {
			return fmt.Errorf("read command: %w", err)
		}
		if err := settleCommand(ctx, q, machineID, commandFromRow(&row), "operator:"+verdict, now); err != nil {
			return err
		}
		return audit(ctx, q, auditEntry{
			actor: actor, verb: "SETTLE", target: machineID, operation: row.OperationID, comment: comment,
			data: map[string]string{"command_id": commandID, "verdict": verdict},
		}, now)
	})
}

// ClearIntervention clears NeedsIntervention and takes the machine out of quarantine, back to the state that it came from. One that
// was in a state of work is not fit for use by an admin's word alone.
func (s *Store) ClearIntervention(ctx context.Context, machineID, actor, comment string, now time.Time) (*baremetalv1.Machine, error) {
	return s.withMachine(ctx, machineID, func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
		if err := mayClear(m); err != nil {
			return err
		}
		if err := cureCauses(ctx, q, machineID, fleet.Happened{Cures: []fleet.Cure{fleet.CuredByAdmin}}, "ClearedByAdmin", now); err != nil {
			return err
		}
		if node.Parse(m.NodeState) == node.Quarantined {
			if err := moveNode(ctx, q, machineID, node.Parse(m.QuarantinedFrom), node.Admin, actor, comment, nil, now); err != nil {
				return err
			}
		}
		return audit(ctx, q, auditEntry{actor: actor, verb: "CLEAR_INTERVENTION", target: machineID, comment: comment}, now)
	})
}

// mayClear says why a machine would not be cleared: its node was quarantined out of work, to which it does not go back.
func mayClear(m dbsqlc.Machine) error {
	from := node.Parse(m.QuarantinedFrom)
	if node.Parse(m.NodeState) != node.Quarantined || node.Resting(from) {
		return nil
	}
	return failure.Precondition("NODE_GUARD_FAILED",
		"the node was %s when it was quarantined (%s), and nobody does that work any more; resume its workflow, or move it to draining or retired",
		node.Name(from), m.QuarantineReason).WithMeta("machine_id", m.MachineID)
}

// SetFlag sets or clears RMA or Retired. What is under way on a machine that is flagged is cancelled.
func (s *Store) SetFlag(ctx context.Context, machineID, flag string, value bool, actor, comment string, now time.Time, opts ...WriteOption) (*baremetalv1.Machine, error) {
	return s.withMachine(ctx, machineID, func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
		if err := conditionsOf(opts).check("machine "+machineID, machineExists, stored{true, m.Version}); err != nil {
			return err
		}
		change := operation.ConditionChange{Type: fleet.ConditionType(flag), Status: value, Reason: "SetByAdmin"}
		if err := setCondition(ctx, q, machineID, change, now); err != nil {
			return err
		}
		if value {
			if _, err := s.stopWork(ctx, q, m, actor, "the machine is flagged "+flag, now); err != nil {
				return err
			}
		}
		return audit(ctx, q, auditEntry{
			actor: actor, verb: "SET_FLAG", target: machineID, comment: comment, data: map[string]string{"flag": flag, "value": fmt.Sprint(value)},
		}, now)
	})
}

// ListTokens reads tokens, newest first, from a position on.
func (s *Store) ListTokens(ctx context.Context, beforeTime time.Time, beforeID string, limit int32) ([]*baremetalv1.BootstrapToken, error) {
	rows, err := s.lists(ctx).ListTokens(ctx, dbsqlc.ListTokensParams{BeforeTime: beforeTime, BeforeID: beforeID, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	out := make([]*baremetalv1.BootstrapToken, 0, len(rows))
	for _, r := range rows {
		out = append(out, tokenMessage(r))
	}
	return out, nil
}

func tokenMessage(r dbsqlc.ListTokensRow) *baremetalv1.BootstrapToken {
	return &baremetalv1.BootstrapToken{
		TokenId: r.TokenID, MachineId: r.MachineID, Role: roleMessage(r.Role), Site: r.Site, CreatedAt: stamp(r.CreatedAt),
		ExpiresAt: stamp(r.ExpiresAt), UsedAt: stampPtr(r.UsedAt), UsedByAgentId: r.UsedByAgentID, RevokedAt: stampPtr(r.RevokedAt),
		Region: r.BoundRegion, Provider: r.BoundProvider,
	}
}

func roleMessage(r string) baremetalv1.AgentRole {
	return baremetalv1.AgentRole(baremetalv1.AgentRole_value["AGENT_ROLE_"+strings.ToUpper(r)])
}

// RevokeToken ends a token that has not been used.
func (s *Store) RevokeToken(ctx context.Context, tokenID, actor string, now time.Time) (*baremetalv1.BootstrapToken, error) {
	t, err := s.q.GetToken(ctx, tokenID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, failure.NotFound("TOKEN_NOT_FOUND", "there is no token %q", tokenID).WithField("token_id", "unknown")
	}
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	err = s.inTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		n, err := q.RevokeToken(ctx, dbsqlc.RevokeTokenParams{TokenID: tokenID, Now: &now})
		if err != nil {
			return fmt.Errorf("revoke token: %w", err)
		}
		if n == 0 && t.RevokedAt == nil {
			return failure.Precondition("TOKEN_NOT_REVOCABLE", "the token has been used; revoke the agent instead")
		}
		return audit(ctx, q, auditEntry{actor: actor, verb: "REVOKE_TOKEN", target: strVal(t.MachineID), data: map[string]string{"token_id": tokenID}}, now)
	})
	if err != nil {
		return nil, err
	}
	if t.RevokedAt == nil {
		t.RevokedAt = &now
	}
	return tokenMessage(dbsqlc.ListTokensRow{
		TokenID: t.TokenID, Role: t.Role, MachineID: strVal(t.MachineID), Site: t.Site, BoundRegion: t.BoundRegion,
		BoundProvider: t.BoundProvider, CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, RevokedAt: t.RevokedAt,
	}), nil
}

// AgentFilter narrows a list of agents. Empty fields match everything.
type AgentFilter struct {
	AgentID, MachineID, Site, Role string
	// Connected is "true", "false" or empty.
	Connected string
	AfterID   string
	Limit     int32
}

// ListAgents reads agents by id, with their certificates and sessions.
func (s *Store) ListAgents(ctx context.Context, f AgentFilter) ([]*baremetalv1.Agent, error) {
	rows, err := s.lists(ctx).ListAgents(ctx, dbsqlc.ListAgentsParams{
		AgentID: f.AgentID, MachineID: f.MachineID, Site: f.Site, Role: strings.ToLower(f.Role), Connected: f.Connected,
		AfterID: f.AfterID, PageSize: f.Limit,
	})
	if err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	var idList []string
	for _, r := range rows {
		idList = append(idList, r.AgentID)
	}
	certs, err := s.q.CertsOf(ctx, nonNil(idList))
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	byAgent := map[string][]*baremetalv1.AgentCert{}
	for _, c := range certs {
		byAgent[c.AgentID] = append(byAgent[c.AgentID], &baremetalv1.AgentCert{
			Fingerprint: c.Fingerprint, SerialNumber: c.SerialNumber, NotBefore: stamp(c.NotBefore), NotAfter: stamp(c.NotAfter),
			RevokedAt: stampPtr(c.RevokedAt), FirstUsedAt: stampPtr(c.FirstUsedAt),
		})
	}
	out := make([]*baremetalv1.Agent, 0, len(rows))
	for _, r := range rows {
		out = append(out, agentMessage(r, byAgent[r.AgentID]))
	}
	return out, nil
}

func agentMessage(r dbsqlc.ListAgentsRow, certs []*baremetalv1.AgentCert) *baremetalv1.Agent {
	a := &baremetalv1.Agent{
		AgentId: r.AgentID, Role: roleMessage(r.Role), MachineId: strVal(r.MachineID), Site: r.Site, Capabilities: r.Capabilities,
		Version: r.Version, Simulated: r.Simulated, Connected: r.SessionID != nil && r.EndedAt == nil,
		ControllerId: strVal(r.ControllerID), Epoch: r.Epoch, BootId: r.BootID, StateId: r.StateID,
		LastHeartbeatAt: stampPtr(r.LastHeartbeatAt), Certs: certs, CreatedAt: stamp(r.CreatedAt),
		SessionStartedAt: stampPtr(r.SessionStartedAt),
	}
	if r.Locked {
		a.LockedReason = "locked by the local operator"
	}
	return a
}

// GetAgent reads one agent.
func (s *Store) GetAgent(ctx context.Context, id string) (*baremetalv1.Agent, error) {
	all, err := s.ListAgents(ctx, AgentFilter{AgentID: id, Limit: 1})
	if err != nil {
		return nil, err
	}
	if id == "" || len(all) == 0 {
		return nil, failure.NotFound("AGENT_NOT_FOUND", "there is no agent %q", id).WithField("agent_id", "unknown")
	}
	return all[0], nil
}

// AuditFilter narrows the audit log. Empty fields match everything.
type AuditFilter struct {
	TargetID, Actor string
	// Since is the first time, Until the first one after.
	Since, Until time.Time
	// BeforeID is the row before which a page begins.
	BeforeID int64
	Limit    int32
}

// ListAudit reads the audit log, newest first, from a row on.
func (s *Store) ListAudit(ctx context.Context, f AuditFilter) ([]*baremetalv1.AuditEntry, error) {
	rows, err := s.plannedLists(ctx).ListAudit(ctx, dbsqlc.ListAuditParams{
		TargetID: f.TargetID, Actor: f.Actor, Since: timePtr(f.Since), Until: timePtr(f.Until), BeforeID: f.BeforeID, PageSize: f.Limit,
	})
	if err != nil {
		return nil, fmt.Errorf("list audit log: %w", err)
	}
	out := make([]*baremetalv1.AuditEntry, 0, len(rows))
	for _, r := range rows {
		out = append(out, &baremetalv1.AuditEntry{
			AuditId: r.AuditID, Ts: stamp(r.Ts), Actor: r.Actor, Verb: r.Verb, TargetId: r.TargetID, RequestId: r.RequestID,
			EventData: r.EventData, OperationId: r.OperationID,
		})
	}
	return out, nil
}

// ScrubAudit empties the personal data of a target's audit rows and says how many there were.
func (s *Store) ScrubAudit(ctx context.Context, targetID, actor string, now time.Time) (int64, error) {
	var n int64
	err := s.inTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if n, err = q.ScrubAudit(ctx, targetID); err != nil {
			return fmt.Errorf("scrub audit log: %w", err)
		}
		return audit(ctx, q, auditEntry{actor: actor, verb: "SCRUB_AUDIT", target: targetID}, now)
	})
	return n, err
}

// MachineCount is a number of machines that are alike.
type MachineCount struct{ Phase, Effective, NodeState, Region, Site string }

// CountMachines counts machines for the gauges.
func (s *Store) CountMachines(ctx context.Context) (map[MachineCount]int, error) {
	rows, err := s.q.MachineCounts(ctx)
	if err != nil {
		return nil, fmt.Errorf("count machines: %w", err)
	}
	out := map[MachineCount]int{}
	for _, r := range rows {
		out[MachineCount{r.Phase, effectiveOf(r), r.NodeState, r.Region, r.Site}] += int(r.Machines)
	}
	return out, nil
}

// effectiveOf returns the effective state of machines that are alike, as screens print it.
func effectiveOf(r dbsqlc.MachineCountsRow) string {
	f := fleet.Facts{
		Phase: fleet.Phase(r.Phase), NodeState: fleet.NodeState(r.NodeState), ActiveOperation: r.Operating,
		ActiveWorkflow: r.InWorkflow, Conditions: map[fleet.ConditionType]bool{},
	}
	if r.Fenced {
		f.UnresolvedCommand = "unknown"
	}
	for _, c := range r.Conditions {
		f.Conditions[fleet.ConditionType(c)] = true
	}
	if state := fleet.Effective(f); state != fleet.StateMaintenanceIdle {
		return string(state)
	}
	return string(fleet.Maintenance)
}
