// Package maas acts on machines through the MAAS region that installs them, and looks at what MAAS says of them.
//
// # What is authoritative
//
// MAAS. What a machine is there is read before anything is asked for, and a request is called done only when MAAS shows
// what it was for. What we have asked for is in the intent of the command, which is durable before a request leaves.
//
// # State model
//
// Decide is pure: of an order, what MAAS shows, and what was asked before, it makes the next request, a wait, or an
// end. Each request of a command is made at most once, but for those that may be repeated by nature (switching the
// power). A deployment carries the name of its operation in MAAS itself, as a workload annotation, so that a later
// attempt knows whose it is.
//
// # Failure handling
//
// Every error of Client says whether the request can have acted: it never left, MAAS refused it, MAAS had no time for
// it, or nobody knows. What nobody knows is looked at until MAAS shows it or the time is up; then it is unknown. The
// client library's own repeats are switched off.
package maas
