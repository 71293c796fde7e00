// Command mutants changes the code that carries the promise, one small change at a time, and counts which changes the
// tests notice.
//
// # Overview
//
// A mutant is one change: a comparison turned round or moved by one, a condition negated or left out, && for ||, a
// statement left out, a case skipped, a return value emptied, a number one higher or lower. All mutants of a package
// are written into one copy of it, each behind a switch, and one test binary is built from that copy (go test -c
// -overlay). INGOT_MUTANT says which mutant is on; the tests that reach it run, and it is killed when one of them fails
// or hangs.
//
// # What is not mutated
//
// Constants and array sizes, which cannot be switched in a running program; what make is given; texts, logging,
// metrics, and methods that only print; failpoints; generated code.
//
// # What is authoritative
//
// survivors.txt explains mutants that live. "equivalent" is a change that no caller can notice: it is left out of the
// count. "accepted" is one that could be noticed and is not: it counts as alive. An explanation whose mutant is gone,
// or is killed, fails the run.
package main
