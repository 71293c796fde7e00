package frontpage

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/identity"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

var agentKeys = validate.Keys{
	"machine_id": validate.Any,
	"site":       validate.Any,
	"role":       validate.Among(enumNames(baremetalv1.AgentRole_value, "AGENT_ROLE_")),
	"connected":  validate.Among(map[string]string{"true": "true", "false": "false"}),
}

// ListAgents implements AdminService.
func (s *Server) ListAgents(ctx context.Context, r *baremetalv1.ListAgentsRequest) (*baremetalv1.ListAgentsResponse, error) {
	size, err := validate.PageSize(r.GetPageSize())
	if err != nil {
		return nil, err
	}
	terms, err := validate.Filter(r.GetFilter(), agentKeys)
	if err != nil {
		return nil, err
	}
	page, err := validate.ParsePage(r.GetPageToken(), "agents", r.GetFilter())
	if err != nil {
		return nil, err
	}
	f := agentFilter(terms)
	f.AfterID, f.Limit = page.ID, size+1
	all, err := s.store.ListAgents(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &baremetalv1.ListAgentsResponse{Agents: all}
	if len(all) > int(size) {
		out.Agents = all[:size]
		out.NextPageToken = validate.Page{ID: all[size-1].GetAgentId()}.Token("agents", r.GetFilter())
	}
	return out, nil
}

func agentFilter(terms []validate.Term) store.AgentFilter {
	var f store.AgentFilter
	for _, t := range terms {
		switch t.Key {
		case "machine_id":
			f.MachineID = t.Value
		case "site":
			f.Site = t.Value
		case "role":
			f.Role = t.Value
		case "connected":
			f.Connected = t.Value
		}
	}
	return f
}

// GetAgent implements AdminService.
func (s *Server) GetAgent(ctx context.Context, r *baremetalv1.GetAgentRequest) (*baremetalv1.Agent, error) {
	if err := validate.Key("agent_id", r.GetAgentId()); err != nil {
		return nil, err
	}
	return s.store.GetAgent(ctx, r.GetAgentId())
}

// maxActor bounds the name of an actor in a filter.
const maxActor = 64

var fingerprint = regexp.MustCompile(`^[0-9a-f]{64}$`)

// RevokeAgent implements AdminService.
func (s *Server) RevokeAgent(ctx context.Context, r *baremetalv1.RevokeAgentRequest) (*baremetalv1.Agent, error) {
	err := firstError(validate.Key("agent_id", r.GetAgentId()), validate.Comment("reason", r.GetReason()))
	if err != nil {
		return nil, err
	}
	if r.GetFingerprint() != "" && !fingerprint.MatchString(r.GetFingerprint()) {
		return nil, validate.Fault("fingerprint", "64 lower-case hexadecimal digits; empty for all certificates")
	}
	if err := s.engine.RevokeAgent(ctx, r.GetAgentId(), r.GetFingerprint(), actor(ctx), r.GetReason()); err != nil {
		return nil, err
	}
	return s.store.GetAgent(ctx, r.GetAgentId())
}

// SettleCommand implements AdminService.
func (s *Server) SettleCommand(ctx context.Context, r *baremetalv1.SettleCommandRequest) (*baremetalv1.Machine, error) {
	err := firstError(
		validate.Key("machine_id", r.GetMachineId()), validate.Key("command_id", r.GetCommandId()),
		validate.OneOf("verdict", r.GetVerdict(), "happened", "did_not_happen"), validate.Comment("comment", r.GetComment()),
	)
	if err != nil {
		return nil, err
	}
	return s.engine.Settle(ctx, r.GetMachineId(), r.GetCommandId(), r.GetVerdict(), actor(ctx), r.GetComment())
}

// ClearIntervention implements AdminService.
func (s *Server) ClearIntervention(ctx context.Context, r *baremetalv1.ClearInterventionRequest) (*baremetalv1.Machine, error) {
	err := firstError(validate.Key("machine_id", r.GetMachineId()), validate.Comment("comment", r.GetComment()))
	if err != nil {
		return nil, err
	}
	return s.store.ClearIntervention(ctx, r.GetMachineId(), actor(ctx), r.GetComment(), s.clock.Now())
}

// RequireIdentity implements AdminService.
func (s *Server) RequireIdentity(ctx context.Context, r *baremetalv1.RequireIdentityRequest) (*baremetalv1.RequireIdentityResponse, error) {
	err := firstError(
		validate.OptionalKey("site", r.GetSite()), validate.OptionalKey("group", r.GetGroup()), validate.Comment("comment", r.GetComment()),
	)
	switch level := identity.Level(r.GetLevel()); {
	case err != nil:
		return nil, err
	case (r.GetSite() == "") == (r.GetGroup() == ""):
		return nil, validate.Fault("site", "exactly one of site and group")
	case level == identity.LevelMedia:
		return nil, failure.Unimplemented("IDENTITY_LEVEL_NOT_WIRED", "the identity level media needs virtual media, which this version does not have; use tpm or network")
	case level != identity.LevelNetwork && level != identity.LevelTPM:
		return nil, validate.Fault("level", "network or tpm")
	default:
		err = s.store.RequireIdentity(ctx, r.GetSite(), r.GetGroup(), level, actor(ctx), r.GetComment(), s.clock.Now())
	}
	if err != nil {
		return nil, err
	}
	return &baremetalv1.RequireIdentityResponse{Site: r.GetSite(), Group: r.GetGroup(), Level: r.GetLevel()}, nil
}

// ForgetTPM implements AdminService.
func (s *Server) ForgetTPM(ctx context.Context, r *baremetalv1.ForgetTPMRequest) (*baremetalv1.Machine, error) {
	if err := firstError(validate.Key("machine_id", r.GetMachineId()), validate.Comment("comment", r.GetComment())); err != nil {
		return nil, err
	}
	return s.store.ForgetTPM(ctx, r.GetMachineId(), actor(ctx), r.GetComment(), s.clock.Now())
}

// SetMachineFlag implements AdminService.
func (s *Server) SetMachineFlag(ctx context.Context, r *baremetalv1.SetMachineFlagRequest) (*baremetalv1.Machine, error) {
	err := firstError(
		validate.Key("machine_id", r.GetMachineId()), validate.OneOf("flag", r.GetFlag(), "RMA", "Retired"),
		validate.Comment("comment", r.GetComment()),
	)
	if err != nil {
		return nil, err
	}
	return s.store.SetFlag(ctx, r.GetMachineId(), r.GetFlag(), r.GetValue(), actor(ctx), r.GetComment(), s.clock.Now())
}

// ListCommands implements AdminService.
func (s *Server) ListCommands(ctx context.Context, r *baremetalv1.ListCommandsRequest) (*baremetalv1.ListCommandsResponse, error) {
	if r.GetOperationId() == "" && r.GetMachineId() == "" {
		return nil, validate.Fault("operation_id", "an operation_id or a machine_id is required")
	}
	err := firstError(
		validate.OptionalKey("operation_id", r.GetOperationId()), validate.OptionalKey("machine_id", r.GetMachineId()),
	)
	if err != nil {
		return nil, err
	}
	if err := s.exist(ctx, r.GetOperationId(), r.GetMachineId()); err != nil {
		return nil, err
	}
	all, err := s.store.ListCommands(ctx, r.GetOperationId(), r.GetMachineId())
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListCommandsResponse{Commands: all}, nil
}

// exist fails with NOT_FOUND when one that is named does not.
func (s *Server) exist(ctx context.Context, operationID, machineID string) error {
	if operationID != "" {
		if _, err := s.store.GetOperation(ctx, operationID); err != nil {
			return err
		}
	}
	if machineID != "" {
		if _, err := s.store.GetMachine(ctx, machineID, ""); err != nil {
			return err
		}
	}
	return nil
}

// ListAuditLog implements AdminService.
func (s *Server) ListAuditLog(ctx context.Context, r *baremetalv1.ListAuditLogRequest) (*baremetalv1.ListAuditLogResponse, error) {
	size, err := validate.PageSize(r.GetPageSize())
	if err != nil {
		return nil, err
	}
	if err := validate.OptionalKey("target_id", r.GetTargetId()); err != nil {
		return nil, err
	}
	if len(r.GetActor()) > maxActor {
		return nil, validate.Fault("actor", "at most %d characters", maxActor)
	}
	f := store.AuditFilter{TargetID: r.GetTargetId(), Actor: r.GetActor(), Limit: size + 1}
	for _, t := range []struct {
		name string
		from *timestamppb.Timestamp
		to   *time.Time
	}{{"since", r.GetSince(), &f.Since}, {"until", r.GetUntil(), &f.Until}} {
		if t.from == nil {
			continue
		}
		if !t.from.IsValid() {
			return nil, validate.Fault(t.name, "not a time")
		}
		*t.to = t.from.AsTime()
	}
	of := strings.Join([]string{f.TargetID, f.Actor, f.Since.UTC().Format(time.RFC3339Nano), f.Until.UTC().Format(time.RFC3339Nano)}, "\x00")
	page, err := validate.ParsePage(r.GetPageToken(), "audit", of)
	if err != nil {
		return nil, err
	}
	if f.BeforeID, err = page.AuditPosition(); err != nil {
		return nil, err
	}
	all, err := s.store.ListAudit(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &baremetalv1.ListAuditLogResponse{Entries: all}
	if n := fitting(all, int(size)); n < len(all) {
		out.Entries = all[:n]
		id := strconv.FormatInt(all[n-1].GetAuditId(), 10)
		out.NextPageToken = validate.Page{ID: id}.Token("audit", of)
	}
	return out, nil
}

// maxAnswer keeps the answer of a list below the 4 MiB that clients take.
const maxAnswer = 3 << 20

// fitting is how many of the messages, at most size and at least one, fit into one answer.
func fitting[M proto.Message](all []M, size int) int {
	bytes := 0
	for i, m := range all {
		if bytes += proto.Size(m) + 8; i == size || i > 0 && bytes > maxAnswer {
			return i
		}
	}
	return len(all)
}

// ScrubAuditEventData implements AdminService.
func (s *Server) ScrubAuditEventData(ctx context.Context, r *baremetalv1.ScrubAuditEventDataRequest) (*baremetalv1.ScrubAuditEventDataResponse, error) {
	if err := validate.Key("target_id", r.GetTargetId()); err != nil {
		return nil, err
	}
	n, err := s.store.ScrubAudit(ctx, r.GetTargetId(), actor(ctx), s.clock.Now())
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ScrubAuditEventDataResponse{ScrubbedRows: n}, nil
}
