package access

import "fmt"

// Scope is what a bearer token is good for. A larger one includes the smaller ones; ScopeReport stands aside.
type Scope uint8

// The scopes. The zero value covers nothing.
const (
	ScopeRead Scope = iota + 1
	ScopeOperate
	ScopeAdmin
	// ScopeReport is an installer's: it opens the report of an installation and nothing else, not even reading. Who may
	// operate may report too.
	ScopeReport
	// ScopeApprove and ScopeCaller are what methods need and no token has: to approve rollouts, and to be known at all.
	ScopeApprove
	ScopeCaller
)

var scopeNames = map[Scope]string{ScopeRead: "read", ScopeOperate: "operate", ScopeAdmin: "admin",
	ScopeReport: "report"}

// String is the name that token files use.
func (s Scope) String() string {
	switch s {
	case ScopeApprove:
		return ScopeAdmin.String() // of the tokens, those alone approve
	case ScopeCaller:
		return ScopeRead.String()
	}
	if name, ok := scopeNames[s]; ok {
		return name
	}
	return "none"
}

// ParseScope reads read, operate, admin or report.
func ParseScope(name string) (Scope, error) {
	for s, n := range scopeNames {
		if n == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("scope %q is none of read, operate, admin, report", name)
}

// Covers reports whether s is need or includes it.
func (s Scope) Covers(need Scope) bool {
	switch {
	case s == 0:
		return false
	case need == ScopeApprove:
		return s == ScopeAdmin
	case need == ScopeCaller:
		return s != ScopeReport
	case s == ScopeReport || need == ScopeReport:
		return s == need || s == ScopeOperate || s == ScopeAdmin
	}
	return s >= need
}
