package view

import (
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

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
