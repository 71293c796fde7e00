package timeline

import (
	"encoding/json"
	"fmt"
	"time"
)

// Change is one change of an entry.
type Change struct {
	Kind, OperationID, CommandID string
	// Actor is who did it: the actor of the audit row of the same entry, else Own; empty for the system. Entries that are
	// one change have their audit row beside them.
	Actor string
	// Own is whom the change itself names: the agent that reported, the user that moved a node.
	Own    string
	Fields map[string]string
	// at is the entry's time.
	at time.Time
	// whole is set when it has all fields that are kept today.
	whole bool
}

// Changes returns the changes of an entry, in their order.
func (e Entry) Changes() ([]Change, error) {
	if e.Kind != Changes {
		c := Change{Kind: e.Kind, Actor: e.Actor, Own: e.Actor, OperationID: e.OperationID, CommandID: e.CommandID,
			at: e.Time}
		if err := json.Unmarshal(e.Fields, &c.Fields); err != nil {
			return nil, fmt.Errorf("parse fields of entry %d: %w", e.Seq, err)
		}
		return []Change{c}, nil
	}
	var all []Change
	if err := json.Unmarshal(e.Fields, &all); err != nil {
		return nil, fmt.Errorf("parse changes of entry %d: %w", e.Seq, err)
	}
	actor := auditor(all)
	for i := range all {
		all[i].at, all[i].whole, all[i].Actor = e.Time, true, all[i].Own
		if actor != "" && all[i].Kind != Audit {
			all[i].Actor = actor
		}
	}
	return all, nil
}

// auditor is who the transaction's audit row names.
func auditor(all []Change) string {
	for _, c := range all {
		if c.Kind == Audit {
			return c.Own
		}
	}
	return ""
}

// UnmarshalJSON reads [kind, actor, operation, command, {fields}].
func (c *Change) UnmarshalJSON(b []byte) error {
	parts := []any{&c.Kind, &c.Own, &c.OperationID, &c.CommandID, &c.Fields}
	n := len(parts)
	if err := json.Unmarshal(b, &parts); err != nil {
		return fmt.Errorf("parse change: %w", err)
	}
	if len(parts) != n || c.Kind == "" {
		return fmt.Errorf("a change of %d parts, not of %d", len(parts), n)
	}
	return nil
}
