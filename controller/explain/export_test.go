package explain

// RuleNames lists the rules of every table.
func RuleNames() []string {
	var out []string
	for _, table := range [][]rule{activeRules, restRules, endedRules} {
		for _, r := range table {
			out = append(out, r.name)
		}
	}
	return out
}
