package validate

import (
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/budget"
)

// Budget checks a budget before it is set.
func Budget(b *baremetalv1.Budget) error {
	if b == nil {
		return Fault("budget", "required")
	}
	var f faults
	if !refForm.MatchString(b.GetName()) {
		f.add("budget.name", refRule)
	}
	if _, known := baremetalv1.Budget_Harm_name[int32(b.GetHarm())]; !known {
		f.add("budget.harm", "DESTROYS or INTERRUPTS")
	}
	key, label := strings.CutPrefix(b.GetDomain(), budget.LabelPrefix)
	switch {
	case label && !validLabelKey(key):
		f.add("budget.domain", "after label: stands the key of a label")
	case !label && b.GetDomain() != budget.Fleet && b.GetDomain() != budget.Site:
		f.add("budget.domain", `"fleet", "site" or "label:KEY", such as "label:rack"`)
	}
	if b.GetDomain() == budget.Fleet && b.GetValue() != "" {
		f.add("budget.value", "the fleet has no values")
	}
	if why := text(b.GetValue(), maxText); why != "" {
		f.add("budget.value", why)
	}
	limits := false
	for field, n := range map[string]int32{
		"at_once": b.GetAtOnce(), "percent": b.GetPercent(), "per_hour": b.GetPerHour(), "per_day": b.GetPerDay(),
	} {
		limits = limits || n > 0
		if n < 0 || field == "percent" && n > 100 {
			f.add("budget."+field, "0 for no limit, or a positive number; a percentage is at most 100")
		}
	}
	if !limits {
		f.add("budget.at_once",
			"set at least one of at_once, percent, per_hour, per_day; to lift all limits delete the budget")
	}
	return f.err()
}
