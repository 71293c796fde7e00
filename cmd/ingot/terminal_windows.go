package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// isTerminal reports whether a file is a console that takes escape sequences. Windows has them off
// at first; this switches them on.
func isTerminal(f *os.File) bool {
	console := windows.Handle(f.Fd())
	var mode uint32
	if windows.GetConsoleMode(console, &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
