// Package attack tests what each party may do when it has turned against the system: hostile clients, agents, sites,
// boxes and strangers against a controller that runs as a process of its own.
//
// # Overview
//
// An Attempt is one thing that one party tries. Each runs against a new controller process while a well-behaved client
// makes calls beside it. The runner measures the peak of the controller's memory over idle, the time, and the p99 of
// that client. It fails when the outcome is one that must never be, when a bound is passed, or when the well-behaved
// client is refused.
//
// # How to add a row
//
// Add an Attempt to the list of the attack_*_test.go of its area. Run returns held(…) or breached(…); an error means
// that the attempt could not be made, and fails the row too. A protection that is not built yet is a row without Run,
// with the reason in NotBuilt.
//
// # Short and long
//
// `make test` runs the short form; `make attack` runs the same rows with the full numbers and prints the table.
package attack
