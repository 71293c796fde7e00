// Package work has the commands that start work on machines, watch it and explain it.
package work
