package validate

import (
	"strings"
	"unicode/utf8"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

const (
	maxUsername = 64
	maxPassword = 256
)

// BMCCredentials checks credentials that are to be stored. What is wrong with a password is said without it.
func BMCCredentials(r *baremetalv1.SetBMCCredentialsRequest) error {
	var f faults
	if !refForm.MatchString(r.GetCredentialsRef()) {
		f.add("credentials_ref", refRule)
	}
	f.add("username", secretText(r.GetUsername(), maxUsername))
	f.add("password", secretText(r.GetPassword(), maxPassword))
	return f.err()
}

// secretText allows whatever a BMC might; RFC 7617 and IPMI both forbid NUL, and a line break is a mistake of copying.
func secretText(s string, limit int) string {
	switch {
	case s == "":
		return "required"
	case len(s) > limit:
		return "too long"
	case strings.ContainsAny(s, "\x00\r\n") || !utf8.ValidString(s):
		return "holds a NUL or a line break"
	}
	return ""
}
