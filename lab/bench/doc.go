// Command bench measures this tree on this machine and prints one table: what pgbench reaches on the database, how many
// operations per second the controller takes from the RPC to SUCCEEDED, how long a command needs to its agent, what an
// idle session costs the controller, what an idle agent costs its machine, and how large the binaries are.
//
// Everything runs on loopback, from the binaries in bin/, and ends by itself. The database is a private one with the
// settings of `ingot-controller --dev`; pgbench and the controller use the same server, one after the other. The
// controller is a process of its own. The agents are those of package fleet, in this process: the agent's code down to
// the executors, with its memory in the process, on simulated machines that do at once what they are told.
//
// There are no thresholds: docs/reference/performance.md shows the figures that were stored, each beside its limit.
package main
