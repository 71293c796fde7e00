package state

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/ingot-metal/ingot/internal/ids"
)

const (
	keyStateID        = "state_id"
	keyGrantSeq       = "grant_seq"
	keyEventSeq       = "event_seq"
	keyControllerTime = "controller_time"
	keyLocked         = "locked"
	keyInventory      = "inventory_hash"
	keyFinding        = "finding." // and the kind of its reports
	keySharedSeq      = "shared_event_seq"
	keyPrevious       = "previous_state_id"
	keyStartedGrant   = "started_grant"
)

// Meta is the agent's small change, read in one go.
type Meta struct {
	StateID string
	// PreviousStateID is the one given up last, until Recognized; else empty.
	PreviousStateID string
	// InDoubt is set when no controller has opened a session for this memory since Doubt.
	InDoubt bool
	// SharedEventSeq is LastEventSeq as it was at Doubt: no number above it can have been sent from this memory.
	SharedEventSeq uint64

	LastGrantSeq uint64
	LastEventSeq uint64
	// ControllerTime is the latest controller time seen; zero when none was.
	ControllerTime time.Time
	// LockedReason is empty when the agent is not locked.
	LockedReason string
	// StartedGrant is the grant that the last command was started with, as it was handed to Start. NewStateID keeps it.
	StartedGrant string
}

// Meta reads all of it.
func (s *Store) Meta(ctx context.Context) (Meta, error) {
	var m Meta
	err := s.read(ctx, "read meta", func() error {
		values, err := allMeta(ctx, s.db)
		if err != nil {
			return err
		}
		m, err = metaOf(values)
		return err
	})
	return m, err
}

func metaOf(values map[string][]byte) (Meta, error) {
	m := Meta{
		StateID: string(values[keyStateID]), PreviousStateID: string(values[keyPrevious]),
		LockedReason: string(values[keyLocked]),
		InDoubt:      len(values[keySharedSeq]) > 0, StartedGrant: string(values[keyStartedGrant]),
	}
	var errs [4]error
	m.LastGrantSeq, errs[0] = number(values[keyGrantSeq])
	m.LastEventSeq, errs[1] = number(values[keyEventSeq])
	var ms uint64
	ms, errs[2] = number(values[keyControllerTime])
	m.SharedEventSeq, errs[3] = number(values[keySharedSeq])
	if ms > 0 {
		m.ControllerTime = time.UnixMilli(int64(ms)).UTC()
	}
	return m, errors.Join(errs[:]...)
}

// StateID names this memory.
func (s *Store) StateID(ctx context.Context) (string, error) {
	m, err := s.Meta(ctx)
	return m.StateID, err
}

const (
	// maxStep bounds by how much the number of an ask is above the one before. Copies of one memory then give different
	// numbers.
	maxStep = 1 << 16
	// keepAsks is how many asks for one command are remembered.
	keepAsks = 1000
	// keyAsks, before a command's id, holds the numbers of its asks.
	keyAsks = "asks."
)

// GrantNumber is the number of an ask for a grant of a command, with those of the asks for it before.
type GrantNumber struct {
	Seq     uint64
	Earlier []uint64
}

// NextGrantSeqs numbers asks for grants of commands, in their order. The numbers are durable when it returns, until the
// commands are done.
func (s *Store) NextGrantSeqs(ctx context.Context, commandIDs ...string) (out []GrantNumber, err error) {
	err = s.write(ctx, "number asks for grants", func(tx *sql.Tx) error {
		out = nil
		last, err := getNumber(tx, keyGrantSeq)
		if err != nil {
			return err
		}
		for _, id := range commandIDs {
			last += 1 + rand.Uint64N(maxStep)
			earlier, err := asksFor(tx, id)
			if err != nil {
				return err
			}
			b, err := json.Marshal(append(slices.Clone(earlier), last))
			if err != nil {
				return err
			}
			if err := setMeta(tx, keyAsks+id, b); err != nil {
				return err
			}
			out = append(out, GrantNumber{last, earlier})
		}
		return setNumber(tx, keyGrantSeq, last)
	})
	return out, err
}

func asksFor(q querier, commandID string) (asks []uint64, err error) {
	b, err := getMeta(q, keyAsks+commandID)
	if err != nil || len(b) == 0 {
		return nil, err
	}
	if err := json.Unmarshal(b, &asks); err != nil {
		return nil, fmt.Errorf("stored asks are damaged: %w", err)
	}
	return asks[max(0, len(asks)-keepAsks):], nil
}

// SawControllerTime records t if it is later than the recorded time.
func (s *Store) SawControllerTime(ctx context.Context, t time.Time) error {
	return s.write(ctx, "remember controller time", func(tx *sql.Tx) error {
		old, err := getNumber(tx, keyControllerTime)
		if err != nil || t.UnixMilli() <= int64(old) {
			return err
		}
		return setNumber(tx, keyControllerTime, uint64(t.UnixMilli()))
	})
}

// Lock makes the agent refuse commands that need a grant, with the reason. An empty reason unlocks.
func (s *Store) Lock(ctx context.Context, reason string) error {
	return s.write(ctx, "set lock", func(tx *sql.Tx) error {
		return setMeta(tx, keyLocked, []byte(reason))
	})
}

// InventoryHash is the hash of the last inventory that was put into the event buffer.
func (s *Store) InventoryHash(ctx context.Context) (hash string, err error) {
	err = s.read(ctx, "read inventory hash", func() error {
		v, err := getMeta(s.db, keyInventory)
		hash = string(v)
		return err
	})
	return hash, err
}

// Finding is the state that the last report of a kind was about; empty when none was made.
func (s *Store) Finding(ctx context.Context, kind string) (state string, err error) {
	err = s.read(ctx, "read finding "+kind, func() error {
		v, err := getMeta(s.db, keyFinding+kind)
		state = string(v)
		return err
	})
	return state, err
}

// NewStateID makes a new memory of an old copy. It takes a new state_id, and deletes the records of reported
// inventories and findings. Every command that is not done ends with the result of lost. Stored results stay, and so do
// events, until Recognized determines which of them the controller has.
func (s *Store) NewStateID(
	ctx context.Context, now time.Time, lost func(c Command, oldID string) ([]byte, error),
) (id string, err error) {
	id = ids.New(ids.State)
	err = s.write(ctx, "take new state id", func(tx *sql.Tx) error {
		old, err := getMeta(tx, keyStateID)
		if err != nil {
			return err
		}
		open, err := queryCommands(tx, "state <> 'DONE'")
		if err != nil {
			return err
		}
		for _, c := range open {
			result, err := lost(c, string(old))
			if err != nil {
				return err
			}
			if err := markDone(tx, c.ID, result, now); err != nil {
				return err
			}
		}
		_, err = tx.Exec("DELETE FROM meta WHERE key GLOB ?", keyFinding+"*")
		err = errors.Join(err, noteShared(tx), setMeta(tx, keyPrevious, old), setMeta(tx, keyInventory, nil))
		if err != nil {
			return err
		}
		return setMeta(tx, keyStateID, []byte(id))
	})
	return id, err
}

// Doubt records the last event that this memory can share with an original, if it is a copy. It is called when a
// process begins. The record holds until Recognized, over further starts.
func (s *Store) Doubt(ctx context.Context) error {
	return s.write(ctx, "note the last event", noteShared)
}

func noteShared(tx *sql.Tx) error {
	noted, err := getMeta(tx, keySharedSeq)
	if err != nil || len(noted) > 0 {
		return err
	}
	seq, err := getNumber(tx, keyEventSeq)
	if err != nil {
		return err
	}
	return setNumber(tx, keySharedSeq, seq)
}

// Recognized ends the doubt: the controller has opened a session for this memory. It deletes the events that the
// controller stored under the former state_id, the last of which has the number stored. A copy reuses numbers that its
// original has used after the copy: those events are others, and stay.
func (s *Store) Recognized(ctx context.Context, stored uint64) error {
	return s.write(ctx, "end the doubt about the memory", func(tx *sql.Tx) error {
		shared, err := getNumber(tx, keySharedSeq)
		if err != nil {
			return err
		}
		if _, err := tx.Exec("DELETE FROM events WHERE seq <= ?", int64(min(shared, stored))); err != nil {
			return err
		}
		_, err = tx.Exec("DELETE FROM meta WHERE key IN (?, ?)", keySharedSeq, keyPrevious)
		return err
	})
}

// PutJSON stores a small document under a key of the caller's, durably. A nil value removes it.
func (s *Store) PutJSON(ctx context.Context, key string, value any) error {
	return s.write(ctx, "store "+key, func(tx *sql.Tx) error {
		if value == nil {
			_, err := tx.Exec("DELETE FROM meta WHERE key = ?", "doc."+key)
			return err
		}
		b, err := json.Marshal(value)
		if err != nil {
			return err
		}
		return setMeta(tx, "doc."+key, b)
	})
}

// GetJSON reads what PutJSON stored; found is false when there is nothing.
func (s *Store) GetJSON(ctx context.Context, key string, into any) (found bool, err error) {
	err = s.read(ctx, "read "+key, func() error {
		b, err := getMeta(s.db, "doc."+key)
		if err != nil || b == nil {
			return err
		}
		found = true
		return json.Unmarshal(b, into)
	})
	return found, err
}

type querier interface {
	QueryRow(query string, args ...any) *sql.Row
	Query(query string, args ...any) (*sql.Rows, error)
}

func ensureStateID(tx *sql.Tx) error {
	id, err := getMeta(tx, keyStateID)
	if err != nil || len(id) > 0 {
		return err
	}
	return setMeta(tx, keyStateID, []byte(ids.New(ids.State)))
}

func allMeta(_ context.Context, q querier) (_ map[string][]byte, err error) {
	rows, err := q.Query("SELECT key, value FROM meta")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	out := map[string][]byte{}
	for rows.Next() {
		var k string
		var v []byte
		if err := rows.Scan(&k, &v); err != nil {
			return nil, err
		}
		out[k] = v
	}
	return out, rows.Err()
}

func getMeta(q querier, key string) ([]byte, error) {
	var v []byte
	err := q.QueryRow("SELECT value FROM meta WHERE key = ?", key).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return v, err
}

func setMeta(tx *sql.Tx, key string, value []byte) error {
	if value == nil {
		value = []byte{}
	}
	_, err := tx.Exec("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
		key, value)
	return err
}

func number(b []byte) (uint64, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("stored number is damaged: %w", err)
	}
	return n, nil
}

func getNumber(q querier, key string) (uint64, error) {
	b, err := getMeta(q, key)
	if err != nil {
		return 0, err
	}
	return number(b)
}

func setNumber(tx *sql.Tx, key string, n uint64) error {
	return setMeta(tx, key, []byte(strconv.FormatUint(n, 10)))
}

func bump(tx *sql.Tx, key string) (uint64, error) {
	n, err := getNumber(tx, key)
	if err != nil {
		return 0, err
	}
	return n + 1, setNumber(tx, key, n+1)
}
