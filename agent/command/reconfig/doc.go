// Package reconfig applies a host configuration (host name and firewall policy) with commit-confirm.
//
// # Overview
//
// The configuration is applied, read back, and then has to prove itself: the controller must answer a new DNS
// look-up, a new TCP connection and a new mTLS handshake before the time to confirm is up. Only then is it
// committed. Old connections prove nothing, since a firewall lets established ones live.
//
// # What is authoritative
//
// The committed configuration stands in the agent's state under the target's id. The firewall table in the
// kernel does not survive a reboot, and Restore puts the committed one back at the start of the agent.
//
// # State model
//
// The intent holds what to go back to, and is durable before the first change; the command that stands
// STARTED with it is the watchdog. Committed generation equal to the intent's: done. Anything else after a
// restart, of the agent or of the machine: roll back.
//
// # Failure handling
//
// No proof in time, a cancel, a time-out and a stop of the agent all roll back. A rollback that fails leaves the
// outcome UNKNOWN. The effects of a rollback carry the command's id with "-rollback" behind it.
package reconfig
