package access

import (
	"strings"
	"time"
)

// StoredToken is one of the database's tokens that is in force.
type StoredToken struct {
	ID, Name  string
	Scope     Scope
	Hash      [32]byte
	ExpiresAt time.Time
	// Owner is the identity of who made it; empty for one of before makers were stored.
	Owner string
	// Selection is the filter of the machines that it is good for. Empty stands for all.
	Selection string
}

// OfPerson reports whether a person has made the token, who bounds its worth.
func (t StoredToken) OfPerson() bool { return strings.HasPrefix(t.Owner, personPrefix) }

// Own returns the role that the token itself has.
func (t StoredToken) Own() Grant { return Grant{Role: t.Scope.Role(), Selection: t.Selection} }

// Within returns the part of its maker's roles that the token has too.
func (t StoredToken) Within(maker []Grant) (out []Grant) {
	own := t.Own()
	for _, g := range maker {
		if role := narrower(own.Role, g.Role); role != "" {
			out = append(out, Grant{Role: role, Selection: both(g.Selection, own.Selection), Binding: g.Binding,
				ExpiresAt: g.ExpiresAt})
		}
	}
	return out
}

// FileToken is a token of the file, without its hash.
type FileToken struct {
	Name      string
	Scope     Scope
	Selection string
}

// FileChange is what a reading of the token file has changed, by the names of its tokens. A token whose scope or secret
// is another one is Changed.
type FileChange struct {
	// Start is set when the controller has read the file for the first time; then every token is Added.
	Start                   bool
	Added, Removed, Changed []string
	At                      time.Time
}
