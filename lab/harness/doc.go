// Package harness runs whole Ingot systems for tests: controllers and agents as in production, over real TLS
// connections and a real PostgreSQL, and everything that can go wrong between them.
//
// # Overview
//
// A Cluster is one database, one data directory and the controller that runs on them now. Everything that reaches the
// controller, and everything that the controller reaches, goes through relays, so that a controller can be cut off
// from its clients, its agents or its database, killed, and replaced by another on the same addresses. A Machine is
// one simulated machine with an agent of its own, or one that a site agent executes for. Binaries run the same as
// processes of their own, which can be killed with SIGKILL at a failpoint.
//
// # Sources of truth
//
// What happened is read from the journal of the simulated world, which neither the agent nor the controller writes to.
// History.Problems compares it with what the API says and gives every contradiction.
//
// # Failure handling
//
// Kill cuts a controller's database connections first, so that nothing that still runs in it can leave a trace, as
// after SIGKILL. Crash does the same to an agent, as far as one process can: its streams are cut, then it is told to
// end. Crashes at exact places are injected by failpoints.
package harness
