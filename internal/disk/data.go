package disk

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// DataDisk is a disk beside the system's, with one file system that a reimage makes where there is none, and keeps
// where there is.
type DataDisk struct {
	// Mount is where the new system mounts it.
	Mount string
	Rule  Rule
}

// maxMount is how long a path of a mount may be, in bytes: it is part of the partition's name, which has 36 characters.
const maxMount = 30

// ParseDataDisk reads a path and a rule with a space between them, such as "/srv serial=S1".
func ParseDataDisk(s string) (DataDisk, error) {
	mount, terms, _ := strings.Cut(strings.TrimSpace(s), " ")
	rule, err := ParseRule(terms)
	switch {
	case err != nil:
		return DataDisk{}, err
	case rule.Empty():
		return DataDisk{}, &RuleError{s, "a data disk is a path and a rule, such as /srv serial=S1"}
	}
	return DataDisk{mount, rule}, mountable(s, mount)
}

// systemPaths are those of the system itself, and of the agent.
var systemPaths = []string{"/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/usr", "/var/lib/ingot"}

func mountable(s, mount string) error {
	bad := func(why string) error { return &RuleError{s, fmt.Sprintf("the path %q %s", mount, why)} }
	switch {
	case !strings.HasPrefix(mount, "/") || mount != path.Clean(mount) || mount == "/":
		return bad("is not one below /")
	case len(mount) > maxMount:
		return bad(fmt.Sprintf("has more than %d bytes", maxMount))
	case strings.Trim(mount, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") != "":
		return bad("has more than letters, digits and / . _ -")
	case slices.ContainsFunc(systemPaths, func(p string) bool { return mount == p || strings.HasPrefix(mount, p+"/") }),
		mount == "/var", mount == "/var/lib":
		return bad("is the system's own")
	}
	return nil
}

// ParseDataDisks reads a list; no path may come twice, or lie below another.
func ParseDataDisks(list []string) ([]DataDisk, error) {
	var out []DataDisk
	for _, s := range list {
		d, err := ParseDataDisk(s)
		if err != nil {
			return nil, err
		}
		for _, o := range out {
			if d.Mount == o.Mount || strings.HasPrefix(d.Mount, o.Mount+"/") || strings.HasPrefix(o.Mount, d.Mount+"/") {
				return nil, &RuleError{s, fmt.Sprintf("the paths %s and %s are in each other's way", o.Mount, d.Mount)}
			}
		}
		out = append(out, d)
	}
	return out, nil
}

// ChooseData returns the disk of each, in their order. Each rule must fit one disk that may be written and is none of
// the system's. look returns why it does not accept the disk's content, or "". It fails with a *NoUniqueMatch.
func ChooseData(
	devices []Device, list []DataDisk, protected []Rule, system []Ref, look func(DataDisk, Device) string,
) ([]Device, error) {
	var out []Device
	for _, data := range list {
		var found []Device
		var all []Candidate
		for _, d := range devices {
			why := against(devices, d, data.Rule, protected)
			switch {
			case why != "":
			case slices.ContainsFunc(system, func(r Ref) bool { return r.Is(d) }):
				why = "it is the system's"
			case slices.ContainsFunc(out, func(o Device) bool { return o.Ref().Is(d) }):
				why = "it is another data disk"
			default:
				why = look(data, d)
			}
			if why == "" {
				found = append(found, d)
			}
			all = append(all, Candidate{Device: d, Why: why})
		}
		if len(found) != 1 {
			return nil, &NoUniqueMatch{Rule: data.Rule, For: data.Mount, Candidates: all}
		}
		out = append(out, found[0])
	}
	return out, nil
}
