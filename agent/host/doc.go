// Package host is the one place where the agent touches the operating system.
//
// # Overview
//
// Host is the interface that executors work against. Linux (New) is the real one; package sim has the
// simulated twin, which keeps a journal of every effect outside the agent's process. Package host decides
// nothing about operations: it causes an effect, or reads the world.
//
// # Sources of truth
//
// The kernel and the firmware. Nothing is cached here: every read asks again, because the answer is used as evidence. A
// changing method returns the state that was read back after the change.
//
// # Parts
//
// Each part of the operating system has a package of its own: boot, disks, firewall, kubeadm and network. Package
// rollback undoes changes that have not proved themselves. Linux is all of them together.
package host
