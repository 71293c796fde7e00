// Package program runs the processes of a system: their starts and ends, their logs, and clocks that can be set.
package program
