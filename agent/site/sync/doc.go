// Package sync keeps a site agent and its controller at one document: the configuration comes down, observations go up.
//
// # Sources of truth
//
// The controller's document is the order. The copy in the agent's state is served while the controller is away, and
// from the start of the agent on. The agent owns its observations and keeps them until an answer shows that they have
// arrived.
//
// # State model
//
//	start -> serve the stored document -> ask for a newer one (held) -> store it -> serve by it -> say so and ask on
//
// The revision is reported as applied only after the services answer by it: the controller lets a machine reboot into
// its new system only when its site would no longer hand out an installer.
//
// # Failure handling
//
// Killed before the document is stored: it comes again. Killed after: it is served from the start on, and told then.
// A document that cannot be stored is not served. One that cannot be served by as a whole is not told as applied, and
// is tried again. Without an answer every report is sent again with the next call; each of them may arrive twice.
package sync
