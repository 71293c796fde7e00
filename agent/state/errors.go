package state

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var (
	// ErrStorageFull is returned when there is no room to make data durable. Its reason on the wire is AGENT_STORAGE_FULL.
	ErrStorageFull = errors.New("AGENT_STORAGE_FULL: no space left for the agent's state")
	// ErrFenced is returned after the handle was fenced: another one owns the state now.
	ErrFenced = errors.New("state handle is fenced")
	// ErrConflict is returned when a command is not in the state that the change starts from.
	ErrConflict = errors.New("command is in another state")
	// ErrRolledBack is returned when the memory is an old copy: the controller, or the machine's boot, knows more of it
	// than it does itself.
	ErrRolledBack = errors.New("the agent's memory is an old copy of itself")
	// ErrInUse is returned when another process works on the state directory.
	ErrInUse = errors.New("state directory is in use by another process")
)

// classify adds ErrStorageFull to SQLite's error when a write found no room.
func classify(what string, err error) error {
	if err == nil {
		return nil
	}
	if isFull(err) {
		return fmt.Errorf("%s: %w (%w)", what, ErrStorageFull, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func isFull(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMOPEN:
		return true
	}
	return false
}
