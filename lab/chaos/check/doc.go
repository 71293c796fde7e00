// Package check judges what a system under faults has done: a History of calls, effects, events, faults and of how
// everything stood at the end, against what Ingot promises. It is pure: an old history can be judged again by a newer
// check.
//
// # Sources of truth
//
// Effects were written down by a process that is neither the controller nor an agent. Everything else is what clients,
// watchers and logs saw. A rule compares two of these sides; where one side alone could be wrong in silence there is a
// rule that needs the other.
//
// # Time
//
// Calls and sightings carry the time since the beginning of their run by one monotonic clock. Effects, commands and
// operations carry wall-clock times of one machine, whose clock is never set.
package check
