package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/planted"
)

// What follows takes protections away in builds with the tag "planted"; ordinary ones never come here.

// loadFor is lockAndLoad. Without the guard of versions it reads in a transaction of its own, whose locks end with it.
func (s *Store) loadFor(
	ctx context.Context, q *dbsqlc.Queries, key pgtx.LockKey, now time.Time,
) (f *preloaded, err error) {
	if !planted.VersionGuard {
		return lockAndLoad(ctx, q, key, now)
	}
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) (err error) {
		f, err = lockAndLoad(ctx, q, key, now)
		return err
	})
	return f, err
}

// pretendCurrent makes what was read, and has been decided on, look like what is stored by now.
func (l *OperationContext) pretendCurrent(ctx context.Context, q *dbsqlc.Queries) error {
	row, err := q.LockOperation(ctx, l.Row.OperationID)
	if err != nil {
		return fmt.Errorf("lock operation: %w", err)
	}
	l.Row.Version, l.Row.EventSeq = row.Version, row.EventSeq
	if l.command == nil {
		return nil
	}
	c, err := q.GetCommand(ctx, l.command.CommandID)
	if err != nil {
		return fmt.Errorf("read command: %w", err)
	}
	was := *l.Snap.Command
	was.State = operation.CommandState(c.State)
	l.Snap.Command = &was
	return nil
}

// ofKnownMemory makes an event say that it comes from the memory that was sent the command.
func ofKnownMemory(e operation.Event, c *operation.Command) operation.Event {
	if c == nil || c.ExecutorStateID == "" {
		return e
	}
	switch e := e.(type) {
	case operation.GrantAsked:
		e.StateID = c.ExecutorStateID
		return e
	case operation.Resulted:
		e.StateID = c.ExecutorStateID
		return e
	case operation.SessionOpened:
		e.StateID = c.ExecutorStateID
		return e
	}
	return e
}
