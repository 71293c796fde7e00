package admin

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/identity"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

// auditVerb is what a list of the audit log takes as a verb.
var auditVerb = regexp.MustCompile(`^[A-Z_]{0,64}\*?$`)

var agentKeys = validate.Keys{
	"machine_id": validate.Any,
	"site":       validate.Any,
	"role":       validate.Among(query.EnumNames(baremetalv1.AgentRole_value, "AGENT_ROLE_")),
	"connected":  validate.Among(map[string]string{"true": "true", "false": "false"}),
}

// ListAgents implements AdminService.
func (s *Server) ListAgents(
	ctx context.Context, r *baremetalv1.ListAgentsRequest,
) (*baremetalv1.ListAgentsResponse, error) {
	terms, err := validate.Filter(r.GetFilter(), agentKeys)
	if err != nil {
		return nil, err
	}
	f := agentFilter(terms)
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Agent]{
		Name: "agents", Filter: r.GetFilter(),
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Agent, error) {
			f.AfterID, f.Limit = after.ID, limit
			return s.stores.Agents.ListAgents(ctx, f)
		},
		Subject: service.Subjects(s.Machine(f.MachineID), service.SubjectOf(f.Site, s.stores.Sites.GetSite)),
		Place:   service.ByID((*baremetalv1.Agent).GetAgentId),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListAgentsResponse{Agents: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

func agentFilter(terms []validate.Term) agentstore.AgentFilter {
	var f agentstore.AgentFilter
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
	return s.stores.Agents.GetAgent(ctx, r.GetAgentId())
}

// maxActor bounds the name of an actor in a filter.
const maxActor = 64

var fingerprint = regexp.MustCompile(`^[0-9a-f]{64}$`)

// RevokeAgent implements AdminService.
func (s *Server) RevokeAgent(ctx context.Context, r *baremetalv1.RevokeAgentRequest) (*baremetalv1.Agent, error) {
	err := service.FirstError(validate.Key("agent_id", r.GetAgentId()), validate.Comment("reason", r.GetReason()))
	if err != nil {
		return nil, err
	}
	if r.GetFingerprint() != "" && !fingerprint.MatchString(r.GetFingerprint()) {
		return nil, validate.Fault("fingerprint", "64 lower-case hexadecimal digits; empty for all certificates")
	}
	if err := s.Engine.RevokeAgent(
		ctx,
		r.GetAgentId(),
		r.GetFingerprint(),
		service.Actor(ctx),
		r.GetReason(),
	); err != nil {
		return nil, err
	}
	return s.stores.Agents.GetAgent(ctx, r.GetAgentId())
}

// SettleCommand implements AdminService.
func (s *Server) SettleCommand(ctx context.Context, r *baremetalv1.SettleCommandRequest) (*baremetalv1.Machine, error) {
	err := service.FirstError(
		validate.Key("machine_id", r.GetMachineId()), validate.Key("command_id", r.GetCommandId()),
		validate.OneOf("verdict", r.GetVerdict(), "happened", "did_not_happen"), validate.Reason("comment", r.GetComment()),
	)
	if err != nil {
		return nil, err
	}
	return s.Engine.Settle(ctx, r.GetMachineId(), r.GetCommandId(), r.GetVerdict(), service.Actor(ctx), r.GetComment())
}

// ClearIntervention implements AdminService.
func (s *Server) ClearIntervention(
	ctx context.Context, r *baremetalv1.ClearInterventionRequest,
) (*baremetalv1.Machine, error) {
	err := service.FirstError(validate.Key("machine_id", r.GetMachineId()), validate.Comment("comment", r.GetComment()))
	if err != nil {
		return nil, err
	}
	return s.stores.Operations.ClearIntervention(ctx, r.GetMachineId(), service.Actor(ctx), r.GetComment(), s.Clock.Now())
}

// RequireIdentity implements AdminService.
func (s *Server) RequireIdentity(
	ctx context.Context, r *baremetalv1.RequireIdentityRequest,
) (*baremetalv1.RequireIdentityResponse, error) {
	err := service.FirstError(
		validate.OptionalKey("site", r.GetSite()), validate.OptionalKey("group", r.GetGroup()),
		validate.Comment("comment", r.GetComment()),
	)
	switch level := identity.Level(r.GetLevel()); {
	case err != nil:
		return nil, err
	case (r.GetSite() == "") == (r.GetGroup() == ""):
		return nil, validate.Fault("site", "exactly one of site and group")
	case level != identity.LevelNetwork && level != identity.LevelMedia && level != identity.LevelTPM:
		return nil, validate.Fault("level", "network, media or tpm")
	default:
		err = s.stores.Identities.RequireIdentity(ctx, r.GetSite(), r.GetGroup(), level, service.Actor(ctx), r.GetComment(),
			s.Clock.Now())
	}
	if err != nil {
		return nil, err
	}
	return &baremetalv1.RequireIdentityResponse{Site: r.GetSite(), Group: r.GetGroup(), Level: r.GetLevel()}, nil
}

// ForgetTPM implements AdminService.
func (s *Server) ForgetTPM(ctx context.Context, r *baremetalv1.ForgetTPMRequest) (*baremetalv1.Machine, error) {
	if err := service.FirstError(validate.Key("machine_id", r.GetMachineId()),
		validate.Comment("comment", r.GetComment())); err != nil {
		return nil, err
	}
	return s.stores.Identities.ForgetTPM(ctx, r.GetMachineId(), service.Actor(ctx), r.GetComment(), s.Clock.Now())
}

// SetMachineFlag implements AdminService.
func (s *Server) SetMachineFlag(
	ctx context.Context, r *baremetalv1.SetMachineFlagRequest,
) (*baremetalv1.Machine, error) {
	err := service.FirstError(
		validate.Key("machine_id", r.GetMachineId()), validate.OneOf("flag", r.GetFlag(), "RMA", "Retired"),
		validate.Comment("comment", r.GetComment()),
	)
	if err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	return s.stores.Operations.SetFlag(
		ctx,
		r.GetMachineId(),
		r.GetFlag(),
		r.GetValue(),
		service.Actor(ctx),
		r.GetComment(),
		s.Clock.Now(),
		opts...)
}

// ListCommands implements AdminService.
func (s *Server) ListCommands(
	ctx context.Context, r *baremetalv1.ListCommandsRequest,
) (*baremetalv1.ListCommandsResponse, error) {
	if r.GetOperationId() == "" && r.GetMachineId() == "" {
		return nil, validate.Fault("operation_id", "an operation_id or a machine_id is required")
	}
	err := service.FirstError(
		validate.OptionalKey("operation_id", r.GetOperationId()), validate.OptionalKey("machine_id", r.GetMachineId()),
	)
	if err != nil {
		return nil, err
	}
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Command]{
		Name: "commands", Filter: r.GetOperationId() + "\x00" + r.GetMachineId(),
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Command, error) {
			return s.stores.OperationQueries.ListCommands(ctx, operationquery.CommandFilter{
				OperationID: r.GetOperationId(), MachineID: r.GetMachineId(), BeforeTime: after.Time, BeforeID: after.ID,
				Limit: limit,
			})
		},
		Subject: service.Subjects(service.SubjectOf(r.GetOperationId(), s.stores.OperationQueries.GetOperation),
			s.Machine(r.GetMachineId())),
		Place: service.ByTime((*baremetalv1.Command).GetCommandId,
			func(c *baremetalv1.Command) time.Time { return c.GetCreatedAt().AsTime() }),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListCommandsResponse{Commands: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// ListAuditLog implements AdminService.
func (s *Server) ListAuditLog(
	ctx context.Context, r *baremetalv1.ListAuditLogRequest,
) (*baremetalv1.ListAuditLogResponse, error) {
	if err := validate.OptionalKey("target_id", r.GetTargetId()); err != nil {
		return nil, err
	}
	if len(r.GetActor()) > maxActor {
		return nil, validate.Fault("actor", "at most %d characters", maxActor)
	}
	if !auditVerb.MatchString(r.GetVerb()) {
		return nil, validate.Fault("verb", "a verb, such as ADD_IMAGE, or how one begins, such as ADD_*")
	}
	f := history.AuditFilter{TargetID: r.GetTargetId(), Actor: r.GetActor(), Verb: r.GetVerb()}
	if prefix, cut := strings.CutSuffix(f.Verb, "*"); cut {
		f.Verb, f.VerbPrefix = "", prefix
	}
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
	of := strings.Join([]string{f.TargetID, f.Actor, r.GetVerb(), f.Since.UTC().Format(time.RFC3339Nano),
		f.Until.UTC().Format(time.RFC3339Nano)}, "\x00")
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.AuditEntry]{
		Name: "audit", Filter: of,
		Read: func(ctx context.Context, after validate.Page, limit int32) (_ []*baremetalv1.AuditEntry, err error) {
			if f.BeforeID, err = after.AuditPosition(); err != nil {
				return nil, err
			}
			f.Limit = limit
			return s.stores.History.ListAudit(ctx, f)
		},
		Subject: service.Subjects(service.Subject{Name: f.TargetID, Read: s.auditTarget},
			service.Subject{Name: f.Actor, Read: s.auditActor}),
		Place: service.ByNumber((*baremetalv1.AuditEntry).GetAuditId),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListAuditLogResponse{Entries: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// auditTarget fails where the audit log has no row of a target, and there is no machine with this id.
func (s *Server) auditTarget(ctx context.Context, target string) error {
	known, err := s.audited(ctx, history.AuditFilter{TargetID: target})
	if known || err != nil {
		return err
	}
	_, err = s.stores.Machines.KnownMachine(ctx, target)
	if failure.HasReason(err, "MACHINE_NOT_FOUND") {
		return failure.NotFound("AUDIT_NAME_NOT_FOUND", "nothing was done to %q, and there is no such machine", target).
			WithField("target_id", "unknown")
	}
	return err
}

// auditActor fails where the audit log has no row of an actor, and there is no token of this name.
func (s *Server) auditActor(ctx context.Context, actor string) error {
	known, err := s.audited(ctx, history.AuditFilter{Actor: actor})
	if known || err != nil {
		return err
	}
	if slices.ContainsFunc(s.fileTokens(), func(t access.FileToken) bool { return t.Name == actor }) {
		return nil
	}
	tokens, err := s.stores.Credentials.ListAPITokens(ctx, false, "", pgtx.AllRows, s.Clock.Now())
	if err != nil ||
		slices.ContainsFunc(tokens, func(t *baremetalv1.APIToken) bool { return t.GetName() == actor }) {
		return err
	}
	if _, err = s.stores.Agents.GetAgent(ctx, actor); !failure.HasReason(err, "AGENT_NOT_FOUND") {
		return err
	}
	return failure.NotFound("AUDIT_NAME_NOT_FOUND", "%q has done nothing, and is no token and no agent", actor).
		WithField("actor", "unknown")
}

// audited reports whether the audit log has a row that a filter lets through.
func (s *Server) audited(ctx context.Context, f history.AuditFilter) (bool, error) {
	f.Limit = 1
	rows, err := s.stores.History.ListAudit(ctx, f)
	return len(rows) > 0, err
}

// ScrubAuditEventData implements AdminService.
func (s *Server) ScrubAuditEventData(
	ctx context.Context, r *baremetalv1.ScrubAuditEventDataRequest,
) (*baremetalv1.ScrubAuditEventDataResponse, error) {
	if err := validate.Key("target_id", r.GetTargetId()); err != nil {
		return nil, err
	}
	n, err := s.stores.History.ScrubAudit(ctx, r.GetTargetId(), service.Actor(ctx), s.Clock.Now())
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ScrubAuditEventDataResponse{ScrubbedRows: n}, nil
}
