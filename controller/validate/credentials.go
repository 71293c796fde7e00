package validate

import (
	"fmt"
	"strings"
	"unicode/utf8"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
)

const (
	maxUsername = 64
	maxPassword = 256
	// maxEndpoints of one credential.
	maxEndpoints = 1000
)

// BMCCredentials checks credentials before they are stored. Errors never repeat a password.
func BMCCredentials(r *baremetalv1.SetBMCCredentialsRequest) error {
	var f faults
	if !refForm.MatchString(r.GetCredentialsRef()) {
		f.add("credentials_ref", refRule)
	}
	if r.GetUsername() != "" || r.GetPassword() != "" || len(r.GetAllowedEndpoints()) == 0 && r.AllowPlainHttp == nil &&
		r.AllowUnverifiedTls == nil {
		f.add("username", secretText(r.GetUsername(), maxUsername))
		f.add("password", secretText(r.GetPassword(), maxPassword))
	}
	if len(r.GetAllowedEndpoints()) > maxEndpoints {
		f.add("allowed_endpoints", fmt.Sprintf("at most %d; a network such as 10.20.0.0/24 covers many", maxEndpoints))
	}
	for i, e := range r.GetAllowedEndpoints() {
		if err := bmcaddr.CheckEntry(e); err != nil || len(e) > maxText {
			f.add(fmt.Sprintf("allowed_endpoints[%d]", i), "must be a host, host:port, or a network in CIDR form")
		}
	}
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
