// Package network makes the cables of the laboratory: network namespaces with a switch, network cards on it, and
// tunnels between them and the host.
//
// # Sources of truth
//
// The kernel. A namespace has no name and no file: it is held by a descriptor of this process and by the processes in
// it, and goes with the last of them, with everything in it. Whoever is killed leaves nothing behind.
//
// # Without root
//
// Network namespaces need privileges. Where the kernel lets users make user namespaces, BecomeRoot runs the program
// again as the root of one of its own; there it may do all of this, and nothing more outside.
package network
