// Package lease assigns the addresses of a segment and records the leases.
//
// # Sources of truth
//
// A Pool in memory decides; the Store survives. A change is in the store before the client hears of it: the caller
// takes the changes of a batch of requests from Changes, saves them, and only then answers. A pool that is made from
// the store again therefore knows every lease that any client has been told of. Offers are not stored: a client that
// lost its offer to a restart asks again.
//
// # The life of an address
//
//	free ──offer──▶ offered ──request──▶ bound ──release, or its end──▶ cooling ──60 s──▶ free
//	                   │                   │
//	                   └─lapses─▶ free      └──decline──▶ set aside for ten minutes
//
// A client is a MAC address: firmware, iPXE, the installer and the installed system of one machine send different
// client identifiers (option 61) and must not use up four addresses. A client that comes back gets its last address as
// long as no other client needed it; others get it only after the cooldown. An address that was never used goes before
// one that was, and of those the one that has rested longest.
//
// All times are parameters and wall-clock times, because they must mean the same after a restart.
package lease
