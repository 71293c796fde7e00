// Package cluster executes the steps of a site agent in a Kubernetes cluster for one machine. It makes the token of a
// join, waits for the machine's Node to be ready, drains it, and uncordons it.
//
// # Sources of truth
//
// The cluster. Every act sets the desired state and reads it back, so that doing it twice is doing it once: after a
// restart of the agent each goes on, with a new grant. The one thing remembered is whether a cordon is ours.
//
// # Failure handling
//
// Nothing is done to a Node that is not recognized as the machine. A drain that ends badly (time is up, cancelled, a
// pod that may not go) removes its own cordon. Evicted pods are elsewhere by then. The API server may be away for as
// long as the step's time lasts.
package cluster
