// Package agent is the agent's wiring: it enrols, and then runs a dispatcher and a session over one memory.
//
// # Overview
//
// New and Run are all there is to it. Many agents can run in one process, each with its own state directory and host. A
// simulated host that reboots stops everything that ran on it, and Run starts it again, as after a boot.
//
// # Sources of truth
//
// The state directory: the database of package state and the identity beside it. The certificate has the agent's
// identity; the controller assigns the role and the machine.
//
// # State model
//
//	boot -> (enrol) -> dispatcher takes over what the state holds -> session -> ...
//	  ^-- the simulated host rebooted: the handle on the state is fenced first, so that nothing that still runs
//	  |   can write, as if it had been killed
//	  ^-- the memory turned out to be an old copy: a new state_id is taken
//
// # Failure handling
//
// Run returns nil when its context ends, session.ErrSuperseded when a newer process has the identity, and otherwise
// only what the agent cannot live on with: an unusable state directory or a refused enrolment. Everything that concerns
// the network is tried again.
package agent
