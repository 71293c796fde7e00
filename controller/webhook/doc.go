// Package webhook notifies other systems of the events of machines and operations: CloudEvents 1.0 over HTTP, signed as
// in Standard Webhooks.
//
// # Sources of truth
//
// The database. This package decides which webhook wants an event, what an answer means, when to try again, and which
// addresses may be called. It carries out one request. The store keeps the rest, and the engine drives it.
//
// # State model
//
// None beyond the idle connections of a Sender.
//
// # Failure handling
//
// Delivery is at least once and not in order: a receiver recognizes repeats by the event's id. What a receiver answers
// besides its status is neither kept nor shown.
package webhook
