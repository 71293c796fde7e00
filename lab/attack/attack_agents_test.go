package attack

// agentAttempts are those of host agents that hold a valid certificate.
func agentAttempts() []Attempt {
	return []Attempt{
		{Party: Host, Attempt: "messages without end", Rule: 5, NotBuilt: "this row"},
	}
}
