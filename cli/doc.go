// Package cli is the `ingot` command line: it speaks the controller's public API and nothing else.
//
// Commands are thin: they read flags, make one call, and hand the answer to package view. What takes long is
// followed by package follow. Connections, contexts and repetition of lost calls are package client's.
//
// Exit codes are part of the interface; see exit.go and `ingot help exit-codes`.
package cli
