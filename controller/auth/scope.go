package auth

import "fmt"

// Scope is what a bearer token is good for. A larger one includes the smaller ones.
type Scope uint8

// The scopes. The zero value covers nothing.
const (
	ScopeRead Scope = iota + 1
	ScopeOperate
	ScopeAdmin
)

var scopeNames = map[Scope]string{ScopeRead: "read", ScopeOperate: "operate", ScopeAdmin: "admin"}

// String is the name that token files use.
func (s Scope) String() string {
	if name, ok := scopeNames[s]; ok {
		return name
	}
	return "none"
}

// ParseScope reads read, operate or admin.
func ParseScope(name string) (Scope, error) {
	for s, n := range scopeNames {
		if n == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("scope %q is none of read, operate, admin", name)
}

// Covers says that s is need or includes it.
func (s Scope) Covers(need Scope) bool { return s >= need && s != 0 }
