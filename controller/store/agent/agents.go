package agent

import (
	"context"
	"fmt"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

func roleMessage(r string) baremetalv1.AgentRole {
	return baremetalv1.AgentRole(baremetalv1.AgentRole_value["AGENT_ROLE_"+strings.ToUpper(r)])
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
	rows, err := s.db.Lists(ctx).ListAgents(ctx, dbsqlc.ListAgentsParams{
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
	certs, err := s.db.Q.CertsOf(ctx, pgtx.NonNil(idList))
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	byAgent := map[string][]*baremetalv1.AgentCert{}
	for _, c := range certs {
		byAgent[c.AgentID] = append(byAgent[c.AgentID], &baremetalv1.AgentCert{
			Fingerprint: c.Fingerprint, SerialNumber: c.SerialNumber, NotBefore: convert.Timestamp(c.NotBefore),
			NotAfter:  convert.Timestamp(c.NotAfter),
			RevokedAt: convert.TimestampPtr(c.RevokedAt), FirstUsedAt: convert.TimestampPtr(c.FirstUsedAt),
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
		AgentId: r.AgentID, Role: roleMessage(r.Role), MachineId: pgtx.StrVal(r.MachineID), Site: r.Site,
		Capabilities: r.Capabilities,
		Version:      r.Version, Simulated: r.Simulated, Connected: r.SessionID != nil && r.EndedAt == nil,
		ControllerId: pgtx.StrVal(r.ControllerID), Epoch: r.Epoch, BootId: r.BootID, StateId: r.StateID,
		LastHeartbeatAt: convert.TimestampPtr(r.LastHeartbeatAt), Certs: certs, CreatedAt: convert.Timestamp(r.CreatedAt),
		SessionStartedAt: convert.TimestampPtr(r.SessionStartedAt),
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
