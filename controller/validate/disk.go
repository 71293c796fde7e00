package validate

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

const maxProtected = 32

// DiskRule checks a rule that chooses a disk: terms such as serial=…, wwn=…, path=/dev/…, model=…, size>=100GiB, joined
// by commas. Empty is fine. It takes what agents take.
func DiskRule(path, s string) error {
	var f faults
	f.add(path, diskRule(s))
	return f.err()
}

func diskRule(s string) string {
	if strings.TrimSpace(s) == "" {
		return ""
	}
	if why := text(s, maxText); why != "" {
		return why
	}
	for part := range strings.SplitSeq(s, ",") {
		if why := diskTerm(strings.TrimSpace(part)); why != "" {
			return why
		}
	}
	return ""
}

// protectedDisks is a list of rules; an empty rule, which holds for every disk, would protect them all.
func protectedDisks(f *faults, path string, list []string) {
	if len(list) > maxProtected {
		f.add(path, fmt.Sprintf("more than %d rules", maxProtected))
		return
	}
	for i, s := range list {
		why := diskRule(s)
		if strings.TrimSpace(s) == "" {
			why = "an empty rule"
		}
		f.add(fmt.Sprintf("%s[%d]", path, i), why)
	}
}

var diskTermForm = regexp.MustCompile(`^([^<>=]+?)\s*(<=|>=|[<>=])\s*(.+)$`)

func diskTerm(s string) string {
	m := diskTermForm.FindStringSubmatch(s)
	if m == nil {
		return fmt.Sprintf("%q is not key=value", s)
	}
	switch key, op, value := m[1], m[2], m[3]; {
	case key == "size":
		return diskSize(value)
	case key != "serial" && key != "wwn" && key != "path" && key != "model":
		return fmt.Sprintf("no such key %q; there are serial, wwn, path, model and size", key)
	case op != "=":
		return key + " can only be compared with ="
	case key == "path" && !strings.HasPrefix(value, "/dev/"):
		return fmt.Sprintf("path %q is not below /dev", value)
	}
	return ""
}

var diskSizeForm = regexp.MustCompile(`^(\d+) *(B|[KMGT]i?B)?$`)

var diskUnits = map[string]int64{
	"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
}

func diskSize(s string) string {
	m := diskSizeForm.FindStringSubmatch(s)
	if m == nil {
		return fmt.Sprintf("size %q is not a whole number with a unit such as GiB", s)
	}
	if n, err := strconv.ParseInt(m[1], 10, 64); err != nil || n > math.MaxInt64/diskUnits[m[2]] {
		return fmt.Sprintf("size %q is too large", s)
	}
	return ""
}
