package validate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ingot-metal/ingot/internal/disk"
)

const maxProtected = 32

// diskRule checks a rule that chooses a disk, by the parser that installers use. Empty is fine.
func diskRule(s string) string {
	if why := text(s, maxText); strings.TrimSpace(s) != "" && why != "" {
		return why
	}
	var bad *disk.RuleError
	if _, err := disk.ParseRule(s); errors.As(err, &bad) {
		return bad.Why
	}
	return ""
}

// dataDisks is a list of paths with rules.
func dataDisks(f *faults, path string, list []string) {
	if len(list) > maxProtected {
		f.add(path, fmt.Sprintf("more than %d disks", maxProtected))
		return
	}
	for i, s := range list {
		f.add(fmt.Sprintf("%s[%d]", path, i), text(s, maxText))
	}
	var bad *disk.RuleError
	if _, err := disk.ParseDataDisks(list); errors.As(err, &bad) {
		f.add(path, fmt.Sprintf("%q: %s", bad.Rule, bad.Why))
	}
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
