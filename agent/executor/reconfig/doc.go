// Package reconfig applies a host configuration (host name, firewall policy, interfaces) with commit-confirm.
//
// # Overview
//
// The way back is written down and guarded by the host's watchdog; then the configuration is applied, read back, and
// has to prove itself: the controller must answer a new DNS look-up, a new TCP connection and a new mTLS handshake,
// from the new address where the way to it leads over one, before the time to confirm is up. Only then is it committed.
// Old connections prove nothing, since a firewall lets established ones live. A host that can (package netcheck)
// examines the network beyond that contact: a proven failure rolls back as well.
//
// # What is authoritative
//
// The host's guard says whether a change was committed: its record is what the watchdog reads. The agent's state under
// the target's id holds the committed configuration, and follows. The firewall table in the kernel does not survive a
// reboot, so that a boot loads the committed one from the host's file. Restore does it where that did not happen, and
// keeps the file. It restores the interfaces of a host without systemd-networkd, too.
//
// # State model
//
//	guard pending → applied → read back → proven → guard committed → remembered → reported
//	      └──────────┴────────────┴───────────┴→ rolled back: by the executor, or by the watchdog in its place
//
// After a restart, of the agent or of the machine: a committed guard, or a remembered generation, is done; anything
// else is rolled back. A host without a watchdog (a simulated one, or one behind a provider) depends on the executor
// alone.
//
// # Failure handling
//
// No proof in time, a cancel, a time-out and a stop of the agent all roll back. A rollback that fails leaves the
// outcome UNKNOWN. The effects of a rollback carry the command's id with "-rollback" behind it. What somebody else has
// changed since the last commit refuses the next order (CONFIG_DRIFT) unless that accepts it by its digest.
// Drift says what it is.
package reconfig
