package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// isTerminal reports whether a person looks at what is written to a file, by a console that takes colours and moves of the
// cursor: those are asked for here, and are off in consoles of Windows at first.
func isTerminal(f *os.File) bool {
	console := windows.Handle(f.Fd())
	var mode uint32
	if windows.GetConsoleMode(console, &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
