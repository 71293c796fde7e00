// Package rules says why a machine is as it is: what it does, on whom it waits, since when, what is the cause, what
// happens next by itself, and what an operator may do.
//
// # Sources of truth
//
// The facts that the store gathers. Explain is a function of them alone; it stores nothing and changes nothing.
//
// # Rules
//
// An answer is given by the first rule that fits, out of one ordered table for work that is under way and one for
// machines at rest. A rule names the cause as exactly as the facts allow, and never more exactly.
//
// # Failure handling
//
// There is none to handle: facts that are missing make an answer less exact. The last rule of each table always fits.
package rules
