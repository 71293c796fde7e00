// Package command has what all commands share: the connection, the flags, output, completion, prompts, exit codes, and
// the view of an operation that runs.
package command
