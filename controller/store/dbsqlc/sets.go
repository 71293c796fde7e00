package dbsqlc

import "strings"

// sets are statements that write one thing, and those that write many of it at once.
var sets = []struct{ one, many string }{
	{insertOperation, insertOperations},
	{insertSteps, insertStepsOfMany},
	{setCurrentOperation, setCurrentOperations},
	{applyToMachine, applyToMachines},
	{advanceGrantSeq, advanceGrantSeqs},
	{insertCommand, insertCommands},
	{updateCommand, updateCommands},
	{updateStep, updateSteps},
	{updateOperation, updateOperations},
	{insertEvents, insertEventsOfMany},
	{recordAudit, recordAudits},
}

var setRanks = func() map[string]int {
	ranks := map[string]int{}
	for i, s := range sets {
		ranks[s.one] = i
	}
	return ranks
}()

// NoSet is the rank of a statement that no other does for many at once.
const NoSet = -1

// SetRank is a statement's place in the order in which changes have them, or NoSet.
func SetRank(sql string) int {
	if i, ok := setRanks[sql]; ok {
		return i
	}
	return NoSet
}

// SetOf is the statement of that rank that does the same for many at once. Its parameters are arrays of the other's in
// the same order. A numbered one has a further array that numbers the rows, and returns the numbers of those that it
// has changed.
func SetOf(rank int) (sql string, numbered bool) {
	sql = sets[rank].many
	return sql, returns(sql, "many")
}

// WritesOnly reports whether the statement returns no rows.
func WritesOnly(sql string) bool { return returns(sql, "exec") || returns(sql, "execrows") }

// returns looks at what sqlc has written into the statement's first line.
func returns(sql, what string) bool {
	first, _, _ := strings.Cut(sql, "\n")
	return strings.HasPrefix(first, "-- name: ") && strings.HasSuffix(first, " :"+what)
}
