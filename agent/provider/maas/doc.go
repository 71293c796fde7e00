// Package maas acts on machines through the MAAS region that installs them, and reads their state in MAAS.
//
// # Sources of truth
//
// MAAS. The state of a machine there is read before each request, and a request is called done only when MAAS shows its
// effect. The intent of the command records our requests, and is durable before one leaves.
//
// # State model
//
// Decide is pure: from an order, the state in MAAS, and the earlier requests it makes the next request, a wait, or an
// end. Each request of a command is made at most once, but for those that may be repeated by nature (switching the
// power). A deployment carries the name of its operation in MAAS itself, as a workload annotation, so that a later
// attempt knows whose it is.
//
// # Failure handling
//
// Every error of Client states whether the request can have acted: it never left, MAAS refused it, MAAS had no time for
// it, or that is open. An open request is polled until MAAS shows its effect or the time is up; then it is unknown. The
// client library's own repeats are switched off.
package maas
