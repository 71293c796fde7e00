package attack

// rightsAttempts are those of clients, admins and site agents: credentials, reports, downloads, the audit log and tokens.
func rightsAttempts() []Attempt {
	return []Attempt{
		{Party: Reader, Attempt: "read secrets", Rule: 8, NotBuilt: "this row"},
		{Party: Operator, Attempt: "point a BMC's address elsewhere", Rule: 1, NotBuilt: "this row"},
		{Party: Operator, Attempt: "add an image from an address that no admin allows", Rule: 6, NotBuilt: "this row"},
		{Party: Admin, Attempt: "change something unseen", Rule: 7, Run: unseen, Config: "images: {allow_networks: [127.0.0.0/8]}\n"},
		{Party: Site, Attempt: "report about a machine of another site", Rule: 4, NotBuilt: "this row"},
		{Party: Operator, Attempt: "work outside of a role that a sign-on gives", Rule: 9, NotBuilt: "sign-on and roles"},
	}
}
