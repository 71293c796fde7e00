// Command mutants changes the code that carries the promise, one small change at a time, and counts which changes the
// tests notice.
//
// # Overview
//
// A mutant is one change: a comparison turned round or moved by one, a condition negated or left out, or && for ||.
// Others are a statement left out, a case skipped, a return value emptied, a number one higher or lower. All mutants of
// a package are written into one copy of it, each behind a switch. One test binary is built from that copy (go test -c
// -overlay). INGOT_MUTANT selects the mutant that is on; the tests that reach it run, and it is killed when one of them
// fails or hangs.
//
// # Code without mutants
//
// Constants and array sizes, which cannot be switched in a running program; arguments of make; texts, logging, metrics,
// and methods that only print. Failpoints and generated code have none either.
//
// # Sources of truth
//
// survivors.txt explains mutants that live. "equivalent" is a change that no caller can notice: it is left out of the
// count. "accepted" is one that could be noticed and is not: it counts as alive. An explanation whose mutant is gone,
// or is killed, fails the run.
//
// # Lines of requirements
//
// `mutants requirements` draws lines of docs/requirements by seed, breaks the code under each, and runs only the tests
// that the line names. A line is noticed if these tests fail for more than half of its breaks, five by default. The run
// fails if fewer than 95 % of the lines are noticed. It also prints the lines of which at least one break was noticed,
// and the share of all breaks.
//
// A break is a mutant in a statement that the named tests execute. No break is chosen by hand, and none is explained
// away: an equivalent one counts against its line, which the majority tolerates. drawBreaks has the rules of the draw.
// Not every mutant is a break: moved limits, numbers one higher, parts of conditions, cases that do not match and
// clean-up are left to the sample above: most inputs do not show them. A return without which a function ends in a
// panic is replaced by the next draw, as any test notices a panic.
//
// All breaks of the product's packages are written into one copy of the tree, behind switches. The programs that tests
// start are built from it too: the statements of other processes are broken and traced like those of the test.
//
// A line is not measured if it names no Go test, or if its tests need a build tag, fail or are skipped without a break.
// It is not measured if they execute nothing that the tests beside them do not. Such lines are printed with the reason,
// and count neither way.
package main
