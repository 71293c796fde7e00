// Package cli is the `ingot` command line: it speaks the controller's public API and nothing else.
//
// It puts the commands together, in the groups that `ingot help` shows: packages work, machines, inventory, admin and
// setup, one file a subject. A command reads its flags, makes one call, and hands the answer to package view. What
// takes long is followed by package follow. Package command has what all commands share; package client makes
// connections and repeats lost calls.
//
// Exit codes are part of the interface; see command/exit.go and `ingot help exit-codes`.
package cli
