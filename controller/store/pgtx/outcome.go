package pgtx

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/internal/failure"
)

// A transaction ends in one of three ways: it is done, it is not done, or the answer to its COMMIT is lost and its
// outcome is unknown. An unknown outcome is read from the server, which keeps the status of each transaction by its
// number (PostgreSQL, functions: pg_xact_status).

// ReasonOutcomeUnknown is the reason of a transaction whose outcome could not be read.
const ReasonOutcomeUnknown = "DATABASE_OUTCOME_UNKNOWN"

// OutcomeUnknown reports whether err is of a transaction that may have been committed. The caller must not do the same
// in another transaction. Any other error of a transaction means that nothing of it is stored.
func OutcomeUnknown(err error) bool { return failure.HasReason(err, ReasonOutcomeUnknown) }

// errNotCommitted is of a transaction whose outcome was read: the server answers again, and has rolled it back.
var errNotCommitted = errors.New("the transaction was not committed")

// transact runs fn in a transaction of its own. It returns nil once that is committed, an OutcomeUnknown error, or
// another error if it is not committed.
func (s *DB) transact(ctx context.Context, o pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	raw, err := s.pool.BeginTx(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		// After a commit there is nothing to roll back. A connection on which that fails is closed, and the server rolls
		// back.
		_ = raw.Rollback(ctx)
	}()
	tx := &numbered{Tx: raw}
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.learn(ctx); err != nil {
		return fmt.Errorf("read the number of the transaction: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	on := serverOf(raw.Conn())
	return s.settle(ctx, tx.number, on, raw.Commit(ctx))
}

// settle turns the answer to a COMMIT into the outcome of the transaction.
func (s *DB) settle(ctx context.Context, number string, on Server, err error) error {
	if err == nil || refused(err) {
		return err
	}
	if number == "" {
		return nil // it has written nothing
	}
	status := s.readStatus(ctx, number, on)
	s.Log.Warn("the answer to a COMMIT was lost; its outcome was read", "transaction", number, "outcome", status.String(),
		"error", err.Error())
	switch status {
	case committed:
		return nil
	case aborted:
		return errors.Join(errNotCommitted, err)
	}
	return failure.Unavailable(ReasonOutcomeUnknown,
		"the controller lost its database while it stored the change; whether the change is stored is not known").Wrap(err)
}

// refused reports whether a COMMIT was answered with a refusal, or never made. A server that ends the session has not
// refused: it may do that after the commit. The codes are of PostgreSQL's appendix A. pgconn.SafeToRetry does not
// count: pgx 5.12 reports it of a COMMIT whose answer was lost.
func refused(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) {
		return true
	}
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR" &&
		!strings.HasPrefix(pg.Code, "08") && !strings.HasPrefix(pg.Code, "57P") && pg.Code != "40003"
}

// numbered is a transaction that learns its number from the server. The question goes with a batch, or a statement
// without rows, that is sent anyway.
type numbered struct {
	pgx.Tx
	// number is the transaction's; empty while it has none, which is as long as it has not written anything.
	number string
	// asked reports whether the question went with the last statement.
	asked bool
}

const askNumber = "SELECT coalesce(pg_current_xact_id_if_assigned()::text, '')"

// SendBatch implements pgx.Tx. The number is known when the results have been closed.
func (t *numbered) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.number == "" {
		b.Queue(askNumber).QueryRow(func(row pgx.Row) error { return row.Scan(&t.number) })
		t.asked = true
	}
	return t.Tx.SendBatch(ctx, b)
}

// Exec implements pgx.Tx.
func (t *numbered) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.number != "" || len(args) == 0 {
		t.asked = false
		return t.Tx.Exec(ctx, sql, args...)
	}
	b := &pgx.Batch{}
	b.Queue(sql, args...)
	results := t.SendBatch(ctx, b)
	tag, err := results.Exec()
	if closed := results.Close(); err == nil {
		err = closed
	}
	return tag, err
}

// Query implements pgx.Tx.
func (t *numbered) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	t.asked = false
	return t.Tx.Query(ctx, sql, args...)
}

// QueryRow implements pgx.Tx.
func (t *numbered) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	t.asked = false
	return t.Tx.QueryRow(ctx, sql, args...)
}

// CopyFrom implements pgx.Tx.
func (t *numbered) CopyFrom(
	ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource,
) (int64, error) {
	t.asked = false
	return t.Tx.CopyFrom(ctx, table, columns, rows)
}

// Begin implements pgx.Tx.
func (t *numbered) Begin(ctx context.Context) (pgx.Tx, error) {
	t.asked = false
	return t.Tx.Begin(ctx)
}

// learn asks for the number by itself, where no statement has brought it.
func (t *numbered) learn(ctx context.Context) error {
	if t.number != "" || t.asked {
		return nil
	}
	return t.Tx.QueryRow(ctx, askNumber).Scan(&t.number)
}

// Server identifies a run of a database server. Numbers of transactions mean the same only within one.
type Server struct {
	// History names the server and the history of its write-ahead log. It changes when a standby takes over.
	History string
	// Run names the time since the server's last start, or last recovery from a crash.
	Run string
}

const serverKey = "ingot.server"

// NoteServer notes which server a new connection leads to.
func NoteServer(conn *pgx.Conn, s Server) { conn.PgConn().CustomData()[serverKey] = s }

func serverOf(conn *pgx.Conn) Server {
	s, _ := conn.PgConn().CustomData()[serverKey].(Server)
	return s
}

// xactStatus is a server's status of a transaction.
type xactStatus int

const (
	unknown xactStatus = iota
	committed
	aborted
	inProgress
)

// String implements fmt.Stringer.
func (x xactStatus) String() string {
	return [...]string{"unknown", "committed", "aborted", "in progress"}[x]
}

// statusLimit is how long an outcome is read for. A session that waits for a COMMIT which was lost on its way is ended
// by idle_in_transaction_session_timeout before.
const statusLimit = 13 * time.Second

// statusPause is the longest time between two reads of an outcome.
const statusPause = time.Second

// readStatus reads a transaction's outcome until it is known, for its limit at most. The caller's context does not
// end it: a caller without patience must not be answered that nothing was done.
func (s *DB) readStatus(ctx context.Context, number string, on Server) xactStatus {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.statusLimit)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, statusPause) {
		status, err := s.statusOf(ctx, number, on)
		if err != nil {
			s.Log.Debug("the outcome of a transaction could not be read yet", "transaction", number, "error", err.Error())
		}
		if err == nil && status != inProgress {
			return status
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return unknown
		case <-timer.C:
		}
	}
}

// statusOf asks a server once.
func (s *DB) statusOf(ctx context.Context, number string, on Server) (xactStatus, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return unknown, err
	}
	defer conn.Release()
	var text *string
	err = conn.QueryRow(ctx, "SELECT pg_xact_status($1::text::xid8)", number).Scan(&text)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "22023" {
		lost := "aborted" // a number that the server has not reached: it was lost in a crash
		text, err = &lost, nil
	}
	if err != nil {
		return unknown, err
	}
	return statusFrom(StrVal(text), on, serverOf(conn.Conn())), nil
}

// statusFrom judges a server's answer. After a crash the number of a transaction that was lost may be given to another
// one, which is then the one that is committed. Another history proves nothing of the one before.
func statusFrom(text string, asked, answers Server) xactStatus {
	switch {
	case asked.History != answers.History:
		return unknown
	case text == "aborted":
		return aborted
	case asked.Run != answers.Run:
		return unknown
	case text == "committed":
		return committed
	case text == "in progress":
		return inProgress
	}
	return unknown // too old to be kept
}
