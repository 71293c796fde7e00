package label

import "slices"

// Rack is the key of a machine's rack in filters, in orders and, as label:rack, in the domains of budgets and rollouts.
// It is also the label that names the rack of a machine whose spec names none.
const Rack = "rack"

// RackOf returns the rack of a machine by the field of its spec and its labels; empty where neither names one. The
// field comes first: roles, lists and NetBox read it, so that a label moves no machine that has it. The function
// rack_of of the database returns the same.
func RackOf(field string, labels map[string]string) string {
	if field != "" {
		return field
	}
	return labels[Rack]
}

// RacksOf returns both names of a machine's rack in their order, each once, and an empty one where there is none. A
// budget of racks counts a machine in each of them, so that a wrong name frees no room.
func RacksOf(field string, labels map[string]string) []string {
	names := []string{RackOf(field, labels)}
	if other := labels[Rack]; other != "" {
		names = append(names, other)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
