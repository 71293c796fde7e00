// Package network makes the cables of the laboratory: network namespaces with a switch, network cards on it, and
// tunnels between them and the host.
//
// # Sources of truth
//
// The kernel. A namespace has no name and no file: it is held by a descriptor of this process and by the processes in
// it. It goes with the last of them, with all its contents. A killed process leaves nothing behind.
//
// # Without root
//
// Network namespaces need privileges. Where the kernel lets users make user namespaces, BecomeRoot runs the program
// again as the root of one of its own. There it may do all of this, without more rights outside.
package network
