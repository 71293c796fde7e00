package operationlog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// ControllerStream is the stream of an operation's log in which the controller writes itself.
const ControllerStream = "controller"

// The bounds of one operation's log. More of an agent's log is dropped: it would fill the database.
const (
	// maxPiece is how many bytes of one piece are kept.
	maxPiece = 256 << 10
	// maxLogPieces and maxLogBytes bound the whole log. maxLogPieces is far more than an installation has.
	maxLogPieces, maxLogBytes = 20_000, 16 << 20
	// fewPieces cannot reach maxLogBytes, and are not added up.
	fewPieces = maxLogBytes / maxPiece
)

// The steps of pieces that the controller writes into a log in place of missing ones.
const (
	logFullStep    = "log-full"
	logRemovedStep = "log-removed"
)

// bounded returns the piece that is stored for another one, given what the log has: itself, cut to its bound; a note
// that the log is full; or nothing, once that note is there.
func bounded(p dbsqlc.AppendLogParams, has dbsqlc.LockOperationForLogRow) (dbsqlc.AppendLogParams, bool) {
	switch {
	case has.Full:
		return p, false
	case has.Last >= maxLogPieces || has.Bytes >= maxLogBytes:
		p.Stream, p.Step = ControllerStream, logFullStep
		p.Data = fmt.Appendf(nil, "the log ends here: one operation may have %d pieces or %d MiB\n", maxLogPieces,
			maxLogBytes>>20)
	case len(p.Data) > maxPiece:
		p.Data = append(p.Data[:maxPiece:maxPiece], "… cut\n"...)
	}
	return p, true
}

// AppendLog adds a piece to the log of an operation within its bounds, and returns its number; 0 when it was left out.
func AppendLog(ctx context.Context, q *dbsqlc.Queries, p dbsqlc.AppendLogParams) (int64, error) {
	has, err := q.LockOperationForLog(ctx, dbsqlc.LockOperationForLogParams{OperationID: p.OperationID, Few: fewPieces,
		FullStep: logFullStep})
	if err != nil {
		return 0, fmt.Errorf("lock operation: %w", err)
	}
	p, ok := bounded(p, has)
	if !ok {
		return 0, nil
	}
	return q.AppendLog(ctx, p)
}

// AppendLog adds a piece to an operation's log and returns its number; 0 when the log is full.
func (s *Store) AppendLog(
	ctx context.Context, operationID, stream, step string, data []byte, now time.Time,
) (int64, error) {
	var seq int64
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) (err error) {
		seq, err = AppendLog(ctx, q, dbsqlc.AppendLogParams{OperationID: operationID, Ts: now, Stream: stream, Step: step,
			Data: data})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("append log: %w", err)
	}
	return seq, nil
}

// LogsOf reads an operation's log after a number.
func (s *Store) LogsOf(
	ctx context.Context, operationID string, after int64, limit int32,
) ([]*baremetalv1.LogChunk, error) {
	rows, err := s.db.Q.LogsOf(ctx, dbsqlc.LogsOfParams{OperationID: operationID, AfterSeq: after, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	return chunks(rows), nil
}

func chunks(rows []dbsqlc.OperationLog) []*baremetalv1.LogChunk {
	out := make([]*baremetalv1.LogChunk, 0, len(rows))
	for _, r := range rows {
		out = append(out, &baremetalv1.LogChunk{
			Ts: convert.Timestamp(r.Ts), RunId: r.OperationID, OperationId: r.OperationID, Stream: r.Stream, Step: r.Step,
			Seq: r.Seq, Data: r.Data,
		})
	}
	return out
}

// OldLogs returns up to limit operations that have a log, were made before a time, and come after an id. next is the id
// to go on from, "" when there are no more. Those that have not ended by then are left out.
func (s *Store) OldLogs(
	ctx context.Context, after string, before time.Time, limit int32,
) (ids []string, next string, err error) {
	rows, err := s.db.Q.LogsFrom(ctx, dbsqlc.LogsFromParams{AfterID: after, PageSize: limit})
	if err != nil {
		return nil, "", fmt.Errorf("look for old logs: %w", err)
	}
	for _, r := range rows {
		if r.CreatedAt.After(before) {
			return ids, "", nil
		}
		if next = r.OperationID; r.FinishedAt != nil && r.FinishedAt.Before(before) {
			ids = append(ids, r.OperationID)
		}
	}
	if len(rows) < int(limit) {
		next = ""
	}
	return ids, next, nil
}

// RemoveLog removes the log of an operation after export has kept its pieces, and leaves a note with their place. A log
// that has nothing but the note stays as it is.
func (s *Store) RemoveLog(
	ctx context.Context, operationID string, now time.Time, export func([]*baremetalv1.LogChunk) (place string, err error),
) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		has, err := q.LockOperationForLog(ctx, dbsqlc.LockOperationForLogParams{OperationID: operationID, Few: fewPieces,
			FullStep: logFullStep})
		if err != nil {
			return fmt.Errorf("lock operation: %w", err)
		}
		rows, err := q.LogsOf(ctx, dbsqlc.LogsOfParams{OperationID: operationID, PageSize: maxLogPieces + 2})
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		pieces := chunks(rows)
		if len(pieces) == 0 || len(pieces) == 1 && pieces[0].GetStep() == logRemovedStep {
			return nil
		}
		place, err := export(pieces)
		if err != nil {
			return err
		}
		_, err = q.AppendLog(ctx, dbsqlc.AppendLogParams{
			OperationID: operationID, Ts: now, Stream: ControllerStream, Step: logRemovedStep,
			Data: fmt.Appendf(nil, "%d pieces were removed by their age; they are kept in %s\n", len(pieces), place),
		})
		if err != nil {
			return fmt.Errorf("append to log: %w", err)
		}
		return pgtx.Wrap(q.DropLog(ctx, dbsqlc.DropLogParams{OperationID: operationID, Through: has.Last}), "drop log")
	})
	if err != nil {
		return fmt.Errorf("remove log: %w", err)
	}
	return nil
}
