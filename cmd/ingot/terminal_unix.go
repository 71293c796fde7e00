//go:build unix

package main

import (
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether a file is a terminal.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
