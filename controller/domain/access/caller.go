package access

import "time"

// Caller is who holds the bearer token of a call. Name is the actor in the audit log. The zero value stands for the
// controller itself.
type Caller struct {
	Name  string
	Scope Scope
	// TokenID is empty for tokens of the file.
	TokenID string
	// Address is the IP address that the call came from; empty for work of the controller's own.
	Address string
	// Person has signed on; nil for a token. Grants are the roles of a person, or of a token that is not good for all
	// that its scope opens.
	Person *Person
	Grants []Grant
	// TokenEnds is when a token of the database expires.
	TokenEnds time.Time
	// Owner is the identity of who made a token; Need is what the call asks for.
	Owner string
	Need  Scope
}

// Identity distinguishes callers, whatever they are called: two people of one name are two, and a token is who has made
// it, through any number of tokens. It is empty for the controller itself.
func (c Caller) Identity() string {
	switch {
	case c.Person != nil:
		return c.Person.Identity()
	case c.Owner != "":
		return c.Owner
	case c.Name == "":
		return ""
	}
	return "token " + c.Name
}

// Client is who shares the bounds of one client: a person with all sessions, or a token.
func (c Caller) Client() string {
	if c.Person != nil {
		return c.Person.Identity()
	}
	return c.Name
}

// Identity distinguishes people.
func (p Person) Identity() string { return personPrefix + p.Issuer + " " + p.Subject }

// personPrefix begins the identity of a person, and of no token.
const personPrefix = "person "
