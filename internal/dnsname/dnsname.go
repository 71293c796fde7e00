// Package dnsname decides which names of machines are names of hosts and of Kubernetes nodes too: a machine's id
// becomes both. It is the one rule for them on both sides and in the command line.
package dnsname

import "regexp"

// subdomain is dns1123SubdomainFmt of k8s.io/apimachinery, pkg/util/validation/validation.go, by which kubeadm judges
// the name of a node (cmd/kubeadm/app/apis/kubeadm/validation, ValidateNodeRegistrationOptions): labels of a-z, 0-9 and
// inner "-", with single dots between them.
var subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// mostID is the length of a label in bytes (RFC 1035, 2.3.4), and less than Linux has for a host's name (64).
const mostID = 63

// MachineIDRule describes the ids that MachineID accepts.
const MachineIDRule = "1 to 63 characters of a-z, 0-9, . and -, each part between dots beginning and ending with " +
	"a letter or digit (RFC 1123)"

// MachineID reports whether s can be the id of a machine, and so the name of its host and of its node.
func MachineID(s string) bool { return len(s) <= mostID && subdomain.MatchString(s) }
