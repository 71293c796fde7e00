package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// The states of a command, as they stand on the wire too.
const (
	Received = "RECEIVED"
	Started  = "STARTED"
	Done     = "DONE"
)

// Command is one command that the agent holds.
type Command struct {
	ID       string
	TargetID string
	Spec     []byte // serialized CommandSpec, exactly as received
	Digest   []byte
	State    string
	// BootID is the boot in which it was received.
	BootID     string
	Intent     []byte
	Result     []byte // serialized CommandResult, once done
	ReceivedAt time.Time
	StartedAt  time.Time
	DoneAt     time.Time
	// Settled: the controller has acknowledged that nothing more can come of it.
	Settled bool
}

// Receive makes a new command durable. When the id is known already, nothing changes and the stored command
// is returned with known = true.
func (s *Store) Receive(ctx context.Context, c Command) (stored Command, known bool, err error) {
	err = s.write(ctx, "store command "+c.ID, func(tx *sql.Tx) error {
		found, err := queryCommands(tx, "command_id = ?", c.ID)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			stored, known = found[0], true
			return nil
		}
		c.State = Received
		stored = c
		_, err = tx.Exec(`INSERT INTO commands (command_id, target_id, spec, digest, state, boot_id, received_ms)
			VALUES (?, ?, ?, ?, 'RECEIVED', ?, ?)`,
			c.ID, c.TargetID, nonNil(c.Spec), nonNil(c.Digest), c.BootID, c.ReceivedAt.UnixMilli())
		return err
	})
	return stored, known, err
}

// Start writes STARTED, the intent, and the grant that it is started with, in one durable step. The command must be
// RECEIVED.
func (s *Store) Start(ctx context.Context, id string, intent, grant []byte, now time.Time) error {
	return s.write(ctx, "start command "+id, func(tx *sql.Tx) error {
		if len(grant) > 0 {
			if err := setMeta(tx, keyStartedGrant, grant); err != nil {
				return err
			}
		}
		return changed(tx.Exec(`UPDATE commands SET state = 'STARTED', intent = ?, started_ms = ?
			WHERE command_id = ? AND state = 'RECEIVED'`, nonNil(intent), now.UnixMilli(), id))
	})
}

// Unstart takes back a Start that was not followed by any effect.
func (s *Store) Unstart(ctx context.Context, id string) error {
	return s.write(ctx, "take back start of command "+id, func(tx *sql.Tx) error {
		return changed(tx.Exec(`UPDATE commands SET state = 'RECEIVED', intent = NULL, started_ms = 0
			WHERE command_id = ? AND state = 'STARTED'`, id))
	})
}

// UpdateIntent replaces the intent of a started command, durably.
func (s *Store) UpdateIntent(ctx context.Context, id string, intent []byte) error {
	return s.write(ctx, "update intent of command "+id, func(tx *sql.Tx) error {
		return changed(tx.Exec(`UPDATE commands SET intent = ? WHERE command_id = ? AND state = 'STARTED'`,
			nonNil(intent), id))
	})
}

// Finish stores the result. A command that is done already keeps the result that it has (ErrConflict).
func (s *Store) Finish(ctx context.Context, id string, result []byte, now time.Time) error {
	return s.write(ctx, "store result of command "+id, func(tx *sql.Tx) error {
		return markDone(tx, id, result, now)
	})
}

// Settle notes that the controller wants no more of a command that is done. Others are left alone.
func (s *Store) Settle(ctx context.Context, id string) error {
	return s.write(ctx, "settle command "+id, func(tx *sql.Tx) error {
		_, err := tx.Exec("UPDATE commands SET settled = 1 WHERE command_id = ? AND state = 'DONE'", id)
		return err
	})
}

// Command reads one command; found is false when the agent doesn't hold it.
func (s *Store) Command(ctx context.Context, id string) (c Command, found bool, err error) {
	err = s.read(ctx, "read command "+id, func() error {
		list, err := queryCommands(s.db, "command_id = ?", id)
		if err == nil && len(list) > 0 {
			c, found = list[0], true
		}
		return err
	})
	return c, found, err
}

// Unsettled lists every command that is not settled, in the order in which they came.
func (s *Store) Unsettled(ctx context.Context) (list []Command, err error) {
	err = s.read(ctx, "list commands", func() error {
		list, err = queryCommands(s.db, "settled = 0")
		return err
	})
	return list, err
}

// Evict forgets settled commands that were done before now minus Retention, and returns their number.
func (s *Store) Evict(ctx context.Context, now time.Time) (n int64, err error) {
	err = s.write(ctx, "evict commands", func(tx *sql.Tx) error {
		res, err := tx.Exec("DELETE FROM commands WHERE settled = 1 AND state = 'DONE' AND done_ms < ?",
			now.Add(-Retention).UnixMilli())
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return n, err
}

func markDone(tx *sql.Tx, id string, result []byte, now time.Time) error {
	if _, err := tx.Exec("DELETE FROM meta WHERE key = ?", keyAsks+id); err != nil {
		return err
	}
	return changed(tx.Exec(`UPDATE commands SET state = 'DONE', result = ?, done_ms = ?
		WHERE command_id = ? AND state <> 'DONE'`, nonNil(result), now.UnixMilli(), id))
}

func changed(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		return ErrConflict
	}
	return err
}

const commandColumns = `command_id, target_id, spec, digest, state, boot_id, intent, result,
	received_ms, started_ms, done_ms, settled`

// queryCommands takes only conditions that stand in this package.
func queryCommands(q querier, where string, args ...any) (list []Command, err error) {
	rows, err := q.Query("SELECT "+commandColumns+" FROM commands WHERE "+where+" ORDER BY received_ms, command_id",
		args...)
	if err != nil {
		return nil, fmt.Errorf("query commands: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		c, err := scanCommand(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, rows.Err()
}

func scanCommand(rows *sql.Rows) (c Command, err error) {
	var received, started, done int64
	err = rows.Scan(&c.ID, &c.TargetID, &c.Spec, &c.Digest, &c.State, &c.BootID, &c.Intent, &c.Result,
		&received, &started, &done, &c.Settled)
	c.ReceivedAt, c.StartedAt, c.DoneAt = fromMillis(received), fromMillis(started), fromMillis(done)
	return c, err
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// nonNil keeps an empty value from becoming NULL.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
