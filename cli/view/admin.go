package view

import (
	"strconv"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Role names an agent's role without its prefix.
func Role(r pb.AgentRole) string { return trimEnum(r.String(), "AGENT_ROLE_") }

// Agents is the table of `ingot agent list`.
func (s Style) Agents(agents []*pb.Agent, wide bool, now time.Time) *Table {
	t := &Table{Header: []string{"AGENT_ID", "ROLE", "MACHINE_ID", "SITE", "CONNECTED", "HEARTBEAT", "VERSION", "LOCKED"}}
	if wide {
		t.Header = append(t.Header, "EPOCH", "CONTROLLER", "SIMULATED", "CAPABILITIES", "STATE_ID", "BOOT_ID")
	}
	for _, a := range agents {
		row := []string{a.GetAgentId(), Role(a.GetRole()), a.GetMachineId(), a.GetSite(), Mark(a.GetConnected()),
			Age(a.GetLastHeartbeatAt(), now), a.GetVersion(), Clean(a.GetLockedReason())}
		if wide {
			row = append(row, strconv.FormatInt(a.GetEpoch(), 10), a.GetControllerId(), Mark(a.GetSimulated()),
				strings.Join(a.GetCapabilities(), ","), a.GetStateId(), a.GetBootId())
		}
		t.Add(row...)
	}
	return t
}

// Controllers is the table of `ingot controllers`.
func (s Style) Controllers(all []*pb.Controller, now time.Time) *Table {
	t := &Table{Header: []string{"CONTROLLER_ID", "HOSTNAME", "VERSION", "STATE", "SESSIONS", "LEADS", "ANSWERING",
		"STARTED", "LEASE", "DRAINING"}}
	for _, k := range all {
		lease := "ended " + Age(k.GetLeaseUntil(), now) + " ago"
		if left := k.GetLeaseUntil().AsTime().Sub(now); left > 0 {
			lease = "holds for " + left.Round(time.Second).String()
		}
		t.Add(k.GetControllerId(), Clean(k.GetHostname()), k.GetVersion(), k.GetState().String(),
			strconv.FormatInt(k.GetSessions(), 10), Mark(k.GetLeads()),
			Mark(k.GetAnswering()), Age(k.GetStartedAt(), now), lease, Age(k.GetDrainingSince(), now))
	}
	return t
}

// Agent is the sheet of `ingot agent get`, certificates included.
func (s Style) Agent(a *pb.Agent, now time.Time) string {
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
	f.Add("LastHeartbeat", Age(a.GetLastHeartbeatAt(), now))
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

// Tokens is the table of `ingot token list`.
func (s Style) Tokens(tokens []*pb.BootstrapToken, now time.Time) *Table {
	t := &Table{Header: []string{"TOKEN_ID", "ROLE", "MACHINE_ID", "SITE", "STATE", "EXPIRES", "USED_BY"}}
	for _, tok := range tokens {
		t.Add(tok.GetTokenId(), Role(tok.GetRole()), tok.GetMachineId(), tok.GetSite(), tokenState(tok, now),
			Time(tok.GetExpiresAt()), tok.GetUsedByAgentId())
	}
	return t
}

// APITokens is the table of `ingot token list`.
func (s Style) APITokens(tokens []*pb.APIToken, now time.Time) *Table {
	t := &Table{Header: []string{"TOKEN_ID", "NAME", "SCOPE", "SELECTION", "SOURCE", "STATE", "EXPIRES",
		"LAST_USED", "CREATED_BY"}}
	for _, tok := range tokens {
		state := "in force"
		switch {
		case tok.GetExpiresAt() != nil && now.After(tok.GetExpiresAt().AsTime()):
			state = "expired"
		case tok.GetRevokedAt() != nil:
			state = "revoked"
		}
		t.Add(tok.GetTokenId(), Clean(tok.GetName()), tok.GetScope(), Clean(tok.GetSelection()), tok.GetSource(), state,
			Time(tok.GetExpiresAt()),
			Time(tok.GetLastUsedAt()),
			Clean(tok.GetCreatedBy()))
	}
	return t
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

// Commands is the table of `ingot commands`.
func (s Style) Commands(commands []*pb.Command, wide bool) *Table {
	t := &Table{Header: []string{"COMMAND_ID", "STEP", "ATTEMPT", "KIND", "STATE", "OUTCOME", "EXECUTOR", "GRANTED",
		"FINISHED", "MESSAGE"}}
	if wide {
		t.Header = append(t.Header, "MACHINE_ID", "OPERATION_ID", "DEADLINE", "SETTLED_BY", "EVIDENCE")
	}
	for _, c := range commands {
		row := []string{c.GetCommandId(), c.GetStep(), strconv.Itoa(int(c.GetAttempt())), c.GetKind(), c.GetState(),
			c.GetOutcome(), c.GetExecutorAgentId(), Time(c.GetGrantedAt()), Time(c.GetFinishedAt()), Clean(c.GetMessage())}
		if wide {
			row = append(row, c.GetMachineId(), c.GetOperationId(), Time(c.GetDeadline()), c.GetSettledBy(),
				Pairs(c.GetEvidence()))
		}
		t.Add(row...)
	}
	return t
}

// Audit is the table of `ingot audit`.
func (s Style) Audit(entries []*pb.AuditEntry, wide bool) *Table {
	t := &Table{Header: []string{"TIME", "ACTOR", "VERB", "TARGET", "OPERATION_ID"}}
	if wide {
		t.Header = append(t.Header, "AUDIT_ID", "REQUEST_ID", "DATA")
	}
	for _, e := range entries {
		row := []string{Time(e.GetTs()), Clean(e.GetActor()), e.GetVerb(), e.GetTargetId(), e.GetOperationId()}
		if wide {
			row = append(row, strconv.FormatInt(e.GetAuditId(), 10), Clean(e.GetRequestId()), Clean(string(e.GetEventData())))
		}
		t.Add(row...)
	}
	return t
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
func (s Style) Authority(a *pb.Authority, now time.Time) string {
	t := &Table{Header: []string{"GENERATION", "STATE", "ROOT_HASH", "MADE", "ENDS", "VOUCHED_UNTIL"}}
	for _, g := range a.GetGenerations() {
		state := "in force"
		if g.GetWithdrawnAt() != nil {
			state = "withdrawn " + Age(g.GetWithdrawnAt(), now) + " ago"
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

// RoleBinding says who has which role, in a line.
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

// RoleBindings is the table of `ingot role list`.
func (s Style) RoleBindings(all []*pb.RoleBinding, now time.Time) *Table {
	t := &Table{Header: []string{"BINDING_ID", "ROLE", "MEMBER", "MACHINES", "EXPIRES", "AGE", "CREATED_BY"}}
	for _, b := range all {
		expires := Time(b.GetExpiresAt())
		if b.GetExpiresAt() != nil && !now.Before(b.GetExpiresAt().AsTime()) {
			expires = s.Warn("ended " + expires)
		}
		t.Add(b.GetBindingId(), b.GetRole(), memberOf(b), machinesOf(b.GetSelection()), expires, Age(b.GetCreatedAt(), now),
			Clean(b.GetCreatedBy()))
	}
	return t
}

// Sessions is the table of `ingot session list`.
func (s Style) Sessions(all []*pb.Session, now time.Time) *Table {
	t := &Table{Header: []string{"SESSION_ID", "NAME", "SUBJECT", "STATE", "AGE", "LAST_SEEN", "EXPIRES"}}
	for _, one := range all {
		state := "in force"
		switch {
		case one.GetRevokedAt() != nil:
			state = s.Warn("revoked")
		case !now.Before(one.GetExpiresAt().AsTime()):
			state = "ended"
		}
		t.Add(one.GetSessionId(), Clean(one.GetName()), Clean(one.GetSubject()), state, Age(one.GetCreatedAt(), now),
			Age(one.GetLastSeenAt(), now), Time(one.GetExpiresAt()))
	}
	return t
}
