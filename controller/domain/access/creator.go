package access

import "time"

// Creator names whose rights stored work goes on by after the call that has asked for it. The zero value stands for
// work of the controller's own.
type Creator struct {
	// FileToken is the name of a token of the file, TokenID the id of one of the database.
	FileToken string `json:"file_token,omitempty"`
	TokenID   string `json:"token_id,omitempty"`
	// Identity is that of a person, with the subject and the groups of the person's sign-on.
	Identity string   `json:"identity,omitempty"`
	Subject  string   `json:"subject,omitempty"`
	Groups   []string `json:"groups,omitempty"`
}

// Creator returns the caller as the creator of work.
func (c Caller) Creator() Creator {
	switch {
	case c.Person != nil:
		return Creator{Identity: c.Identity(), Subject: c.Person.Subject, Groups: c.Person.Groups}
	case c.TokenID != "":
		return Creator{TokenID: c.TokenID}
	}
	return Creator{FileToken: c.Name}
}

// CreatorFacts are what the rights of a creator follow from.
type CreatorFacts struct {
	// File are the tokens of the token file.
	File []FileToken
	// Token is the creator's token of the database; nil where it was revoked.
	Token *StoredToken
	// Person is the creator, or the person who has made the token; nil where the person is not known.
	Person   *Person
	Bindings []RoleBinding
}

// Rights returns the roles that a creator has now. A token that has expired counts until it is revoked, and a person
// does however long ago the sign-on was: work goes on for longer than either.
func (c Creator) Rights(f CreatorFacts, now time.Time) []Grant {
	switch {
	case c.FileToken != "":
		for _, tok := range f.File {
			if tok.Name == c.FileToken {
				return []Grant{{Role: tok.Scope.Role(), Selection: tok.Selection}}
			}
		}
		return nil
	case c.TokenID == "" && f.Person != nil:
		return f.Person.Grants(f.Bindings, now)
	case f.Token == nil:
		return nil
	}
	if !f.Token.OfPerson() {
		return []Grant{f.Token.Own()}
	}
	if f.Person == nil {
		return nil
	}
	return f.Token.Within(f.Person.Grants(f.Bindings, now))
}
