// Package session keeps the agent connected to a controller: one session at a time, over two streams.
//
// # Overview
//
// A session opens the Commands stream with Hello, and after Welcome the Events stream. Messages of the dispatcher are
// sent as they come. Events are sent from the buffer in order and trimmed when acknowledged. Heartbeats are sent live.
//
// # Sources of truth
//
// The controller: one session per identity, and the newer one wins. An agent that learns that a newer process uses its
// identity confirms that and stops for good.
//
// # State model
//
//	dial -> Hello -> Welcome -> streaming -> (broken | Drain | rotated certificate) -> wait -> dial
//	                                      -> Superseded -> ErrSuperseded, the end
//	             Welcome(state_rolled_back) -> state.ErrRolledBack, the owner takes a new state id
//
// # Failure handling
//
// Everything else is tried again with exponential backoff and full jitter, or after the controller's delay. An expired
// certificate is replaced by Reenroll. While a rotation is under way the next certificate and the one in use are tried
// in turns: a crash at any point leaves one that works.
package session
