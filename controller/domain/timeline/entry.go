// Package timeline is the history of a machine as a chain of hashes: the form of an entry, whether a chain is unbroken,
// and the machine's state by a chain.
//
// The database writes the entries, in the transactions that make the changes; this package is pure and only reads them.
package timeline

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"
)

// The kinds of entry.
const (
	// Snapshot is the first entry of a machine that is older than its history.
	Snapshot = "snapshot"
	// Machine is a machine's own row: all of it in the first entry, then the changes.
	Machine   = "machine"
	Condition = "condition"
	Operation = "operation"
	Step      = "step"
	Command   = "command"
	// NodeState is a move of a node state, with its actor and the former state.
	NodeState = "node_state"
	// Audit is a row of the audit log, its data as a salted digest.
	Audit    = "audit"
	Workflow = "workflow"
	// Recount states the digest of a row of refusals anew. An upgrade wrote it once: such rows used to be counted up.
	Recount = "recount"
	// Restored is written where the database went back to an older copy, which ends with the entry before.
	Restored = "restored"
	// Changes is an entry that holds all changes that its transaction made. Entries of the other kinds are each one
	// change, and older than those.
	Changes = "changes"
)

// Entry is one link of a chain.
type Entry struct {
	// MachineID is empty in the fleet's chain, which holds entries without a machine.
	MachineID string
	// Seq counts from 1 without gaps.
	Seq int64
	// Time is whole microseconds, and it never falls. What one transaction did has one time.
	Time time.Time
	// Tx is the database's number of the transaction.
	Tx                                  int64
	Kind, Actor, OperationID, CommandID string
	// Fields is a JSON object of strings, or of kind Changes an array of changes, byte by byte as it is stored.
	Fields []byte
	// Prev is the hash of the entry before, empty in the first one.
	Prev, Hash []byte
}

// Sum returns the hash that the entry should have. It is the SHA-256 of Prev, then number and time (microseconds since
// 1970) and transaction in decimal, and each text with its length in bytes before it. So no byte can move from one
// column to the next unseen. The SQL function timeline_enter computes the same.
func (e Entry) Sum() []byte {
	b := bytes.NewBuffer(slices.Clone(e.Prev))
	text := func(s string) { fmt.Fprintf(b, "%d:%s", len(s), s) }
	text(e.MachineID)
	fmt.Fprintf(b, "%d,%d,%d,", e.Seq, e.Time.UnixMicro(), e.Tx)
	for _, s := range []string{e.Kind, e.Actor, e.OperationID, e.CommandID} {
		text(s)
	}
	b.Write(e.Fields)
	sum := sha256.Sum256(b.Bytes())
	return sum[:]
}
