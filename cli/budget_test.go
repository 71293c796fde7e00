package cli

import "testing"

func TestBudgetCommands(t *testing.T) {
	golden(t, "budget", fleet,
		"budget list",
		"budget list -o name",
		"budget list -o json",
		"budget set all --domain fleet --at-once 50 --per-hour 200",
		"budget set racks --domain label:rack --percent 10 -o yaml",
		"budget set old --domain site --value cellar --at-once 1 --per-day 3 -o name",
		"budget set nothing",
		"budget set",
		"budget delete racks",
		"budget delete racks -o name",
		"budget delete nobody",
		"budget slots",
		"budget slots -o name",
		"budget slots -o json",
		"budget release machine-1 --comment looked",
		"budget release machine-1 -o json",
		"budget release machine-2",
		"budget release machine-9",
		"server freeze --comment stop",
		"server freeze -o name",
		"__complete budget delete ''",
		"__complete budget release ''",
	)
}
