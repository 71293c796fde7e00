//go:build unix

package main

import (
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether a person looks at what is written to a file.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
