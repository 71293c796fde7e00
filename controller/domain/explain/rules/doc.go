// Package rules explains the state of a machine: its work, the party that it waits for, since when, the cause, the next
// step by itself, and the actions of an operator.
//
// # Sources of truth
//
// The facts that the store gathers. Explain is a function of them alone; it stores nothing and changes nothing.
//
// # Rules
//
// The first rule that fits makes the answer. There is one ordered table for work that is under way and one for machines
// at rest. A rule names the cause as exactly as the facts allow, and never more exactly.
//
// # Failure handling
//
// There is none to handle: facts that are missing make an answer less exact. The last rule of each table always fits.
package rules
