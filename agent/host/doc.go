// Package host is the one place where the agent touches the operating system.
//
// # Overview
//
// Host is the interface that executors work against. Linux (New) is the real one; package sim has the
// simulated twin, which keeps a journal of every effect outside the agent's process. Package host decides
// nothing about operations: it causes an effect, or reads the world.
//
// # What is authoritative
//
// The kernel and the firmware. Nothing is cached here: every read asks again, because the answer is used as
// evidence. What a changing method returns is read back after the change.
//
// # State model
//
// Boot id: a new one proves a reboot. BootNext: one variable of the firmware, consumed by the next boot. Host
// name: a file and a kernel value, both set. Firewall: one nftables table of our own (inet ingot); its
// generation and the digest of what was applied are kept in the table itself, so that a restarted agent can
// tell what it holds without any memory of its own. It does not survive a reboot. Network: files of our own prefix for
// systemd-networkd, or the kernel's interfaces where the agent is init; /etc/ingot/network/applied.json says which
// configuration is in force.
//
// Guard: /etc/ingot/network/guard.json holds the last change and the way back, and goes pending → committed or
// rolled_back, each under a lock that the agent, systemd's timer, the unit at boot and process 1 share. It lies beside
// the files that it is about, so that both are there at boot or neither.
//
// # Failure handling
//
// A Refusal of kind ErrUnsupported, ErrNotWired, ErrInvalid or ErrDrift means that nothing was changed. Any
// other error leaves the outcome open, and the caller reads the world.
package host
