package access

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/failure"
)

// The reasons of refusals for lack of rights, as in baremetal.v1.Reason.
const (
	ReasonScopeTooSmall = "SCOPE_TOO_SMALL"
	ReasonNoRole        = "NO_ROLE"
)

// Role is what a person may do.
type Role string

// The roles. An approver reads, and approves rollouts.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
	Approver Role = "approver"
	Admin    Role = "admin"
)

// Reporter is the role of a token that reports installations. People have other roles.
const Reporter Role = "reporter"

// Roles are the roles of people.
func Roles() []Role { return []Role{Viewer, Operator, Approver, Admin} }

// Scope is that of a token which may do the same, but for approvals.
func (r Role) Scope() Scope {
	return map[Role]Scope{Viewer: ScopeRead, Operator: ScopeOperate, Approver: ScopeRead, Admin: ScopeAdmin,
		Reporter: ScopeReport}[r]
}

// Role returns the role with the rights of a scope.
func (s Scope) Role() Role {
	return map[Scope]Role{ScopeRead: Viewer, ScopeOperate: Operator, ScopeAdmin: Admin, ScopeReport: Reporter}[s]
}

// narrower returns the role with the rights that both roles have; empty where they share none.
func narrower(a, b Role) Role {
	switch {
	case a == b || b == Admin:
		return a
	case a == Admin:
		return b
	case a == Reporter || b == Reporter:
		if a == Operator || b == Operator {
			return Reporter
		}
		return ""
	}
	return Viewer // of Viewer, Operator and Approver, any two share reading alone
}

// both returns the selection of the machines that are in two selections.
func both(a, b string) string {
	switch {
	case a == "" || a == b:
		return b
	case b == "":
		return a
	}
	return a + ", " + b
}

// Covers reports whether the role opens what needs the scope.
func (r Role) Covers(need Scope) bool {
	return need == ScopeApprove && r == Approver || r.Scope().Covers(need)
}

// RoleBinding grants a role to a group or a person.
type RoleBinding struct {
	ID   string
	Role Role
	// One of both is set: a value of the groups claim, or a subject.
	Group, Subject string
	// Selection is the filter of the machines that the role covers. Empty covers all machines, and calls that are not
	// about machines.
	Selection string
	// ExpiresAt is zero where it has no end.
	ExpiresAt time.Time
}

// Grant is a role that a person has.
type Grant struct {
	Role               Role
	Selection, Binding string
	ExpiresAt          time.Time
}

// Person is whom a token of the provider speaks of.
type Person struct {
	Issuer, Subject, Name string
	Groups                []string
	IssuedAt, ExpiresAt   time.Time
	// Session is the sign-on. Renewed tokens have the same one, where the provider names it; Lasting reports that.
	Session string
	Lasting bool
}

// Grants returns the roles that a person has now, in the order of the bindings.
func (p Person) Grants(bindings []RoleBinding, now time.Time) []Grant {
	var out []Grant
	for _, b := range bindings {
		ended := !b.ExpiresAt.IsZero() && !now.Before(b.ExpiresAt)
		named := b.Subject != "" && b.Subject == p.Subject || b.Group != "" && slices.Contains(p.Groups, b.Group)
		if named && !ended {
			out = append(out, Grant{Role: b.Role, Selection: b.Selection, Binding: b.ID, ExpiresAt: b.ExpiresAt})
		}
	}
	return out
}

// PersonCaller is the caller with the roles of a person, if they are good for need. The caller is known even where they
// are not.
func PersonCaller(p Person, grants []Grant, need Scope) (Caller, error) {
	c := Caller{Name: p.Name, Person: &p}
	if need != ScopeCaller && len(grants) == 0 {
		c.Need = need
		return c, failure.Denied(ReasonNoRole, "%s has no role here; groups: %s", p.Name, list(p.Groups))
	}
	return c.With(grants, need)
}

// With returns the caller with roles, if they are good for need.
func (c Caller) With(grants []Grant, need Scope) (Caller, error) {
	c.Scope, c.Grants, c.Need = 0, grants, need
	reports := len(grants) > 0
	for _, g := range grants {
		reports = reports && g.Role == Reporter
		if g.Selection == "" {
			c.Scope = max(c.Scope, g.Role.Scope())
		}
	}
	if need == ScopeCaller && !reports {
		return c, nil
	}
	if len(c.covering()) == 0 {
		return c, failure.Denied(ReasonScopeTooSmall, "this needs a role with scope %s; %s has %s", need, c.Name,
			list(roleNames(grants))).WithMeta("scope", c.Highest().String()).WithMeta("required_scope", need.String())
	}
	if reports {
		c.Scope = ScopeReport
		return c, nil
	}
	// A role for some machines reads; what else it opens is known once it is known which machine a call is about.
	c.Scope = max(c.Scope, ScopeRead)
	return c, nil
}

func list(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

func roleNames(grants []Grant) (names []string) {
	for _, g := range grants {
		names = append(names, string(g.Role))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// covering are the caller's roles that open the call.
func (c Caller) covering() (out []Grant) {
	for _, g := range c.Grants {
		if g.Role.Covers(c.Need) {
			out = append(out, g)
		}
	}
	return out
}

// Within returns the selections of machines, each once, that the call may be about. Where the caller is not restricted
// there are none.
func (c Caller) Within() (selections []string, restricted bool) {
	for _, g := range c.covering() {
		if g.Selection == "" {
			return nil, false
		}
		selections = append(selections, g.Selection)
	}
	slices.Sort(selections)
	return slices.Compact(selections), len(selections) > 0
}

// In is the caller of a call about a machine that is in these selections.
func (c Caller) In(selections []string) Caller {
	c.Scope = 0
	for _, g := range c.Grants {
		if g.Selection == "" || slices.Contains(selections, g.Selection) {
			c.Scope = max(c.Scope, g.Role.Scope())
		}
	}
	return c
}

// Least is the caller of a call about several machines, each of which is in one of the caller's selections: it has what
// each of the roles allows that open the call.
func (c Caller) Least() Caller {
	c.Scope = 0
	for n, g := range c.covering() {
		if s := g.Role.Scope(); n == 0 || s < c.Scope {
			c.Scope = s
		}
	}
	return c
}

// Working is the caller of a call that prepares work. It is held to the machines on which it may begin the work, if
// there are any.
func (c Caller) Working() Caller {
	working := c
	if working.Need = ScopeOperate; len(working.covering()) == 0 {
		return c
	}
	return working
}

// Highest is the largest scope that the caller has, on whatever machine.
func (c Caller) Highest() Scope {
	highest := c.Scope
	for _, g := range c.Grants {
		highest = max(highest, g.Role.Scope())
	}
	return highest
}

// Rights returns the rights that open the call, so that a stream can be ended after their change.
func (c Caller) Rights() string {
	var b strings.Builder
	for _, g := range c.covering() {
		fmt.Fprintf(&b, "%s %s %q\n", g.Binding, g.Role, g.Selection)
	}
	return b.String()
}

// OutsideSelection is the refusal of a call about a machine that none of the caller's roles is for. A machine that does
// not exist gets the same, so that callers do not learn which machines exist.
func (c Caller) OutsideSelection() error {
	return failure.Denied("OUTSIDE_SELECTION",
		"the machine is not one of those that the roles of %s are for; ingot whoami shows them", c.Name)
}
