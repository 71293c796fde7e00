package system

import (
	"strings"

	"github.com/ingot-metal/ingot/agent/host/effect"
)

// ValidateHostname accepts a host name or a fully qualified one: labels of letters, digits and inner hyphens
// (RFC 1123, section 2.1), at most 64 bytes in all (HOST_NAME_MAX of Linux, sethostname(2)).
func ValidateHostname(name string) error {
	if name == "" || len(name) > 64 {
		return effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, "host name %q is empty or longer than 64 bytes", name)
	}
	for label := range strings.SplitSeq(name, ".") {
		if !ValidLabel(label) {
			return effect.Refuse(
				effect.ErrInvalid,
				effect.ReasonInvalid,
				"host name %q: label %q is not letters, digits and inner hyphens",
				name,
				label,
			)
		}
	}
	return nil
}

func ValidLabel(label string) bool {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for _, r := range label {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (r < '0' || r > '9') && r != '-' {
			return false
		}
	}
	return true
}
