// Package reconfig applies a host configuration (host name, firewall policy, interfaces) with commit-confirm.
//
// # Overview
//
// The rollback is recorded and guarded by the host's watchdog. Then the configuration is applied, read back, and has to
// prove itself before the time to confirm is up. A new DNS look-up, a new TCP connection and a new mTLS handshake with
// the controller must succeed. They come from the new address if the route uses it. Only then is the configuration
// committed. Old connections prove nothing, since a firewall lets established ones live. A host that can (package
// netcheck) examines the network beyond that contact: a proven failure rolls back as well.
//
// # Sources of truth
//
// The host's guard records whether a change was committed; the watchdog reads it. The agent's state under the target's
// id holds the committed configuration, and follows. The firewall table in the kernel does not survive a reboot, so
// that a boot loads the committed one from the host's file. Restore does it where that did not happen, and keeps the
// file. It restores the interfaces of a host without systemd-networkd, too.
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
// outcome UNKNOWN. The effects of a rollback carry the command's id with "-rollback" behind it. After a foreign change
// since the last commit the next order is refused (CONFIG_DRIFT) unless it accepts the drift by its digest. Drift
// describes the change.
package reconfig
