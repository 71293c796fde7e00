package view

import (
	"strconv"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/encode"
)

// Role names an agent's role without its prefix.
func Role(r pb.AgentRole) string { return trimEnum(r.String(), "AGENT_ROLE_") }

// Agents are the columns of `ingot agent list`.
func (s Style) Agents(a *pb.Agent) (cells, wide []Cell) {
	return []Cell{
			{"AGENT_ID", a.GetAgentId()}, {"ROLE", Role(a.GetRole())}, {"MACHINE_ID", a.GetMachineId()}, {"SITE", a.GetSite()},
			{"CONNECTED", Mark(a.GetConnected())}, {"HEARTBEAT", Age(a.GetLastHeartbeatAt(), s.Now)},
			{"VERSION", a.GetVersion()}, {"LOCKED", Clean(a.GetLockedReason())},
		}, []Cell{
			{"EPOCH", strconv.FormatInt(a.GetEpoch(), 10)}, {"CONTROLLER", a.GetControllerId()},
			{"SIMULATED", Mark(a.GetSimulated())}, {"CAPABILITIES", strings.Join(a.GetCapabilities(), ",")},
			{"STATE_ID", a.GetStateId()}, {"BOOT_ID", a.GetBootId()},
		}
}

// Controllers are the columns of `ingot controllers`.
func (s Style) Controllers(k *pb.Controller) (cells, wide []Cell) {
	lease := "ended " + Age(k.GetLeaseUntil(), s.Now) + " ago"
	if left := k.GetLeaseUntil().AsTime().Sub(s.Now); left > 0 {
		lease = "holds for " + left.Round(time.Second).String()
	}
	return []Cell{
		{"CONTROLLER_ID", k.GetControllerId()}, {"HOSTNAME", Clean(k.GetHostname())}, {"VERSION", k.GetVersion()},
		{"STATE", k.GetState().String()}, {"SESSIONS", strconv.FormatInt(k.GetSessions(), 10)},
		{"LEADS", Mark(k.GetLeads())}, {"ANSWERING", Mark(k.GetAnswering())}, {"STARTED", Age(k.GetStartedAt(), s.Now)},
		{"LEASE", lease}, {"DRAINING", Age(k.GetDrainingSince(), s.Now)},
	}, nil
}

// Agent is the sheet of `ingot agent get`, certificates included.
func (s Style) Agent(a *pb.Agent) string {
	f := &Fields{}
	f.Add("Agent", a.GetAgentId())
	f.Add("Role", Role(a.GetRole()))
	f.Add("Machine", a.GetMachineId())
	f.Add("Site", a.GetSite())
	f.Add("Version", a.GetVersion())
	f.Add("Simulated", Mark(a.GetSimulated()))
	f.Add("Connected", yesNo(a.GetConnected()))
	f.Add("Controller", a.GetControllerId())
	f.Add("Epoch", strconv.FormatInt(a.GetEpoch(), 10))
	f.Add("SessionStarted", Time(a.GetSessionStartedAt()))
	f.Add("LastHeartbeat", Age(a.GetLastHeartbeatAt(), s.Now))
	f.Add("BootId", a.GetBootId())
	f.Add("StateId", a.GetStateId())
	f.Add("Capabilities", strings.Join(a.GetCapabilities(), ", "))
	f.Add("Locked", s.Warn(Clean(a.GetLockedReason())))
	f.Add("Created", Time(a.GetCreatedAt()))
	if len(a.GetCerts()) == 0 {
		return f.String()
	}
	t := &Table{Header: []string{"FINGERPRINT", "NOT_AFTER", "FIRST_USED", "REVOKED", "REASON"}}
	for _, c := range a.GetCerts() {
		t.Add(c.GetFingerprint(), Time(c.GetNotAfter()), Time(c.GetFirstUsedAt()), Time(c.GetRevokedAt()),
			Clean(c.GetRevokedReason()))
	}
	return f.String() + "\n" + t.String()
}

// Tokens are the columns of `ingot token list`.
func (s Style) Tokens(tok *pb.BootstrapToken) (cells, wide []Cell) {
	return []Cell{
		{"TOKEN_ID", tok.GetTokenId()}, {"ROLE", Role(tok.GetRole())}, {"MACHINE_ID", tok.GetMachineId()},
		{"SITE", tok.GetSite()}, {"STATE", tokenState(tok, s.Now)}, {"EXPIRES", Time(tok.GetExpiresAt())},
		{"USED_BY", tok.GetUsedByAgentId()},
	}, nil
}

// APITokens are the columns of `ingot token list`.
func (s Style) APITokens(tok *pb.APIToken) (cells, wide []Cell) {
	state := "in force"
	switch {
	case tok.GetExpiresAt() != nil && s.Now.After(tok.GetExpiresAt().AsTime()):
		state = "expired"
	case tok.GetRevokedAt() != nil:
		state = "revoked"
	}
	return []Cell{
		{"TOKEN_ID", tok.GetTokenId()}, {"NAME", Clean(tok.GetName())}, {"SCOPE", tok.GetScope()},
		{"SELECTION", Clean(tok.GetSelection())}, {"SOURCE", tok.GetSource()}, {"STATE", state},
		{"EXPIRES", Time(tok.GetExpiresAt())}, {"LAST_USED", Time(tok.GetLastUsedAt())},
		{"CREATED_BY", Clean(tok.GetCreatedBy())},
	}, nil
}

func tokenState(t *pb.BootstrapToken, now time.Time) string {
	switch {
	case t.GetRevokedAt() != nil:
		return "revoked"
	case t.GetUsedAt() != nil:
		return "used"
	case t.GetExpiresAt() != nil && now.After(t.GetExpiresAt().AsTime()):
		return "expired"
	}
	return "open"
}

// Commands are the columns of `ingot commands`.
func (s Style) Commands(c *pb.Command) (cells, wide []Cell) {
	return []Cell{
			{"COMMAND_ID", c.GetCommandId()}, {"STEP", c.GetStep()}, {"ATTEMPT", strconv.Itoa(int(c.GetAttempt()))},
			{"KIND", c.GetKind()}, {"STATE", c.GetState()}, {"OUTCOME", c.GetOutcome()}, {"EXECUTOR", c.GetExecutorAgentId()},
			{"GRANTED", Time(c.GetGrantedAt())}, {"FINISHED", Time(c.GetFinishedAt())}, {"MESSAGE", Clean(c.GetMessage())},
		}, []Cell{
			{"MACHINE_ID", c.GetMachineId()}, {"OPERATION_ID", c.GetOperationId()}, {"DEADLINE", Time(c.GetDeadline())},
			{"SETTLED_BY", c.GetSettledBy()}, {"EVIDENCE", Pairs(c.GetEvidence())},
		}
}

// Audit are the columns of `ingot audit`.
func (s Style) Audit(e *pb.AuditEntry) (cells, wide []Cell) {
	return []Cell{
			{"TIME", Time(e.GetTs())}, {"ACTOR", Clean(e.GetActor())}, {"VERB", e.GetVerb()}, {"TARGET", e.GetTargetId()},
			{"OPERATION_ID", e.GetOperationId()}, {"DETAILS", Clean(encode.Details(e.GetEventData()))},
		}, []Cell{
			{"AUDIT_ID", strconv.FormatInt(e.GetAuditId(), 10)}, {"REQUEST_ID", Clean(e.GetRequestId())},
			{"DATA", Clean(string(e.GetEventData()))},
		}
}

// Server is the sheet of `ingot server info`.
func (s Style) Server(i *pb.ServerInfo) string {
	f := &Fields{}
	f.Add("Version", i.GetVersion())
	f.Add("Controller", i.GetControllerId())
	f.Add("ServerTime", Time(i.GetServerTime()))
	f.Add("CAHash", i.GetCaHash())
	f.Add("SchemaVersion", strconv.Itoa(int(i.GetSchemaVersion())))
	if i.GetFrozenSince() != nil {
		f.Add("FrozenSince", Time(i.GetFrozenSince()))
		f.Add("FrozenReason", i.GetFrozenReason())
		f.Add("FrozenBecause", Clean(i.GetFrozenBecause()))
		f.Add("AgentsNotSeen", strconv.Itoa(int(i.GetAgentsNotSeen())))
	}
	f.Add("NotWired", strings.Join(i.GetNotWired(), ", "))
	return f.String()
}

// Authority is the sheet of `ingot ca status`.
func (s Style) Authority(a *pb.Authority) string {
	t := &Table{Header: []string{"GENERATION", "STATE", "ROOT_HASH", "MADE", "ENDS", "VOUCHED_UNTIL"}}
	for _, g := range a.GetGenerations() {
		state := "in force"
		if g.GetWithdrawnAt() != nil {
			state = "withdrawn " + Age(g.GetWithdrawnAt(), s.Now) + " ago"
		}
		t.Add(strconv.Itoa(int(g.GetGeneration())), state, g.GetRootHash(), Time(g.GetCreatedAt()), Time(g.GetEndsAt()),
			Time(g.GetVouchedUntil()))
	}
	if a.GetHolderCount() == 0 {
		return t.String()
	}
	h := &Table{Header: []string{"AGENT_ID", "ROLE", "MACHINE_ID", "SITE", "GENERATION", "CONNECTED", "CERTIFICATE_ENDS"}}
	for _, k := range a.GetHolders() {
		h.Add(k.GetAgentId(), strings.ToUpper(k.GetRole()), k.GetMachineId(), k.GetSite(),
			strconv.Itoa(int(k.GetGeneration())), yesNo(k.GetConnected()), Time(k.GetCertificateEndsAt()))
	}
	return t.String() + "\n" + s.Warn(strconv.Itoa(int(a.GetHolderCount()))+" hold a certificate of an older generation") +
		"\n" + h.String()
}

// Caller is the sheet of `ingot whoami`.
func (s Style) Caller(c *pb.Caller) string {
	f := &Fields{}
	f.Add("Name", Clean(c.GetName()))
	f.Add("Kind", c.GetKind())
	f.Add("Scope", c.GetScope())
	if c.GetKind() == "person" {
		f.Add("Issuer", Clean(c.GetIssuer()))
		f.Add("Subject", Clean(c.GetSubject()))
		f.Add("Groups", Clean(strings.Join(c.GetGroups(), ", ")))
		f.Add("Session", c.GetSessionId())
		f.Add("Expires", Time(c.GetExpiresAt()))
	}
	f.Add("Address", c.GetAddress())
	if c.GetKind() != "person" {
		return f.String()
	}
	if len(c.GetRoles()) == 0 {
		return f.String() + s.Warn("No role: ask an admin for ingot role grant") + "\n"
	}
	t := &Table{Header: []string{"ROLE", "MACHINES", "EXPIRES", "BINDING_ID"}}
	for _, r := range c.GetRoles() {
		t.Add(r.GetRole(), machinesOf(r.GetSelection()), Time(r.GetExpiresAt()), r.GetBindingId())
	}
	return f.String() + "\n" + t.String()
}

func machinesOf(selection string) string {
	if selection == "" {
		return "all"
	}
	return Clean(selection)
}

// RoleBinding returns a line with the member and the role.
func (s Style) RoleBinding(b *pb.RoleBinding) string {
	text := b.GetRole() + " to " + memberOf(b) + " on " + machinesOf(b.GetSelection()) + " machines"
	if b.GetSelection() != "" {
		text = b.GetRole() + " to " + memberOf(b) + " on machines " + machinesOf(b.GetSelection())
	}
	if b.GetExpiresAt() != nil {
		text += " until " + Time(b.GetExpiresAt())
	}
	return text + " (" + b.GetBindingId() + ")"
}

func memberOf(b *pb.RoleBinding) string {
	if b.GetSubject() != "" {
		return "subject " + Clean(b.GetSubject())
	}
	return "group " + Clean(b.GetGroup())
}

// RoleBindings are the columns of `ingot role list`.
func (s Style) RoleBindings(b *pb.RoleBinding) (cells, wide []Cell) {
	expires := Time(b.GetExpiresAt())
	if b.GetExpiresAt() != nil && !s.Now.Before(b.GetExpiresAt().AsTime()) {
		expires = s.Warn("ended " + expires)
	}
	return []Cell{
		{"BINDING_ID", b.GetBindingId()}, {"ROLE", b.GetRole()}, {"MEMBER", memberOf(b)},
		{"MACHINES", machinesOf(b.GetSelection())}, {"EXPIRES", expires}, {"AGE", Age(b.GetCreatedAt(), s.Now)},
		{"CREATED_BY", Clean(b.GetCreatedBy())},
	}, nil
}

// Sessions are the columns of `ingot session list`.
func (s Style) Sessions(one *pb.Session) (cells, wide []Cell) {
	state := "in force"
	switch {
	case one.GetRevokedAt() != nil:
		state = s.Warn("revoked")
	case !s.Now.Before(one.GetExpiresAt().AsTime()):
		state = "ended"
	}
	return []Cell{
		{"SESSION_ID", one.GetSessionId()}, {"NAME", Clean(one.GetName())}, {"SUBJECT", Clean(one.GetSubject())},
		{"STATE", state}, {"AGE", Age(one.GetCreatedAt(), s.Now)}, {"LAST_SEEN", Age(one.GetLastSeenAt(), s.Now)},
		{"EXPIRES", Time(one.GetExpiresAt())},
	}, nil
}
