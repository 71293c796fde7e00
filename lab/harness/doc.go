// Package harness runs whole Ingot systems for tests: controllers and agents as in production, over real TLS
// connections and a real PostgreSQL, and everything that can go wrong between them.
//
// # Overview
//
// A Cluster is one database, one data directory and the controller that runs on them now. All connections to and from
// the controller go through relays. So a controller can be cut off from its clients, its agents or its database,
// killed, and replaced by another on the same addresses. A Machine is one simulated machine with an agent of its own,
// or one that a site agent executes for. Binaries run the same as processes of their own, which can be killed with
// SIGKILL at a failpoint.
//
// # Sources of truth
//
// What happened is read from the journal of the simulated world, which neither the agent nor the controller writes to.
// MachineHistory.Violations compares it with the API's data and returns every contradiction.
//
// # Failure handling
//
// Kill cuts a controller's database connections first, so that nothing that still runs in it can leave a trace, as
// after SIGKILL. Crash does the same to an agent, as far as one process can: its streams are cut, then it is ordered to
// end. Crashes at exact places are injected by failpoints.
package harness
