package attack

// identityAttempts are those of boxes on a provisioning segment that claim to be a machine.
func identityAttempts() []Attempt {
	return []Attempt{
		{Party: Box, Attempt: "claim a machine by its MAC", Rule: 2, NotBuilt: "this row"},
		{Party: Box, Attempt: "claim a machine that boots from virtual media", Rule: 2, NotBuilt: "virtual media"},
	}
}
