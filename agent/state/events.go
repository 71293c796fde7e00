package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
)

// Priority is the order in which a full buffer drops events: the lowest first.
type Priority int

// In the order in which they are dropped. Dropped itself is never dropped.
const (
	Progress Priority = iota
	Log
	Heartbeat
	Inventory
	Report
	droppedNotice
)

var priorityNames = map[Priority]string{
	Progress: "progress", Log: "log", Heartbeat: "heartbeat", Inventory: "inventory", Report: "report",
}

func (p Priority) String() string { return priorityNames[p] }

func priorityOf(e *fleetv1.Event) (Priority, error) {
	switch e.GetBody().(type) {
	case *fleetv1.Event_Progress:
		return Progress, nil
	case *fleetv1.Event_Log:
		return Log, nil
	case *fleetv1.Event_Heartbeat:
		return Heartbeat, nil
	case *fleetv1.Event_Inventory:
		return Inventory, nil
	case *fleetv1.Event_Report:
		return Report, nil
	}
	return 0, fmt.Errorf("event of kind %T cannot be buffered", e.GetBody())
}

// Append numbers the event, stamps it and makes it durable. Over the cap the lowest priority goes, oldest
// first; that may be the event itself.
func (s *Store) Append(ctx context.Context, e *fleetv1.Event, now time.Time) error {
	err := s.write(ctx, "buffer event", func(tx *sql.Tx) error { return s.append(tx, e, now) })
	if err == nil {
		s.signal()
	}
	return err
}

// AppendInventory is Append that also remembers the hash, in the same transaction.
func (s *Store) AppendInventory(ctx context.Context, r *fleetv1.InventoryReport, now time.Time) error {
	err := s.write(ctx, "buffer inventory", func(tx *sql.Tx) error {
		e := &fleetv1.Event{Body: &fleetv1.Event_Inventory{Inventory: r}}
		if err := s.append(tx, e, now); err != nil {
			return err
		}
		return setMeta(tx, keyInventory, []byte(r.GetHash()))
	})
	if err == nil {
		s.signal()
	}
	return err
}

// AppendFinding is Append of a report on what the host keeps looking at. It also remembers the state that the report is
// about, in the same transaction.
func (s *Store) AppendFinding(ctx context.Context, r *fleetv1.Report, state string, now time.Time) error {
	err := s.write(ctx, "buffer report", func(tx *sql.Tx) error {
		e := &fleetv1.Event{Body: &fleetv1.Event_Report{Report: r}}
		if err := s.append(tx, e, now); err != nil {
			return err
		}
		return setMeta(tx, keyFinding+r.GetKind(), []byte(state))
	})
	if err == nil {
		s.signal()
	}
	return err
}

func (s *Store) append(tx *sql.Tx, e *fleetv1.Event, now time.Time) error {
	p, err := priorityOf(e)
	if err != nil {
		return err
	}
	if err := insertEvent(tx, e, p, now); err != nil {
		return err
	}
	return s.enforceCap(tx)
}

func insertEvent(tx *sql.Tx, e *fleetv1.Event, p Priority, now time.Time) error {
	seq, err := bump(tx, keyEventSeq)
	if err != nil {
		return err
	}
	e.Seq, e.Ts = seq, timestamppb.New(now)
	body, err := proto.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	_, err = tx.Exec("INSERT INTO events (seq, priority, body) VALUES (?, ?, ?)", int64(seq), int(p), body)
	return err
}

func (s *Store) enforceCap(tx *sql.Tx) error {
	var n int
	if err := tx.QueryRow("SELECT COUNT(*) FROM events").Scan(&n); err != nil {
		return err
	}
	for over := n - s.maxEvents; over > 0; over-- {
		var seq int64
		var p Priority
		err := tx.QueryRow("SELECT seq, priority FROM events WHERE priority < ? ORDER BY priority, seq LIMIT 1",
			int(droppedNotice)).Scan(&seq, &p)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := drop(tx, seq, p); err != nil {
			return err
		}
	}
	return nil
}

func drop(tx *sql.Tx, seq int64, p Priority) error {
	if _, err := tx.Exec("DELETE FROM events WHERE seq = ?", seq); err != nil {
		return err
	}
	_, err := tx.Exec("INSERT INTO dropped (priority, n) VALUES (?, 1) ON CONFLICT (priority) DO UPDATE SET n = n + 1",
		int(p))
	return err
}

// Events returns up to limit events with numbers above after, in order. When events were dropped since the last call,
// it first appends a Dropped event with their number. That is done here and not at the loss, because in a long silence
// the notices would themselves fill the buffer.
func (s *Store) Events(ctx context.Context, after uint64, limit int, now time.Time) (list []*fleetv1.Event, err error) {
	var lost int
	err = s.read(ctx, "count dropped events", func() error {
		return s.db.QueryRow("SELECT COUNT(*) FROM dropped").Scan(&lost)
	})
	if err != nil {
		return nil, err
	}
	if lost > 0 {
		if err := s.write(ctx, "note dropped events", func(tx *sql.Tx) error { return noteDropped(tx, now) }); err != nil {
			return nil, err
		}
	}
	err = s.read(ctx, "read events", func() error {
		list, err = queryEvents(s.db, after, limit)
		return err
	})
	return list, err
}

func noteDropped(tx *sql.Tx, now time.Time) (err error) {
	rows, err := tx.Query("SELECT priority, n FROM dropped")
	if err != nil {
		return err
	}
	counts := map[string]uint64{}
	for rows.Next() {
		var p Priority
		var n int64
		if err := rows.Scan(&p, &n); err != nil {
			return errors.Join(err, rows.Close())
		}
		counts[p.String()] = uint64(n)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || len(counts) == 0 {
		return err
	}
	e := &fleetv1.Event{Body: &fleetv1.Event_Dropped{Dropped: &fleetv1.Dropped{ByPriority: counts}}}
	if err := insertEvent(tx, e, droppedNotice, now); err != nil {
		return err
	}
	_, err = tx.Exec("DELETE FROM dropped")
	return err
}

func queryEvents(q querier, after uint64, limit int) (list []*fleetv1.Event, err error) {
	rows, err := q.Query("SELECT body FROM events WHERE seq > ? ORDER BY seq LIMIT ?", int64(after), limit)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			return nil, err
		}
		e := &fleetv1.Event{}
		if err := proto.Unmarshal(body, e); err != nil {
			return nil, fmt.Errorf("decode buffered event: %w", err)
		}
		list = append(list, e)
	}
	return list, rows.Err()
}

// Trim forgets all events up to seq: the controller has stored them.
func (s *Store) Trim(ctx context.Context, seq uint64) error {
	return s.write(ctx, "trim events", func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM events WHERE seq <= ?", int64(seq))
		return err
	})
}

// BufferedEvents is the number of events that wait for acknowledgement.
func (s *Store) BufferedEvents(ctx context.Context) (n int64, err error) {
	err = s.read(ctx, "count events", func() error {
		return s.db.QueryRow("SELECT COUNT(*) FROM events").Scan(&n)
	})
	return n, err
}

// Changed receives after events were appended through this handle. Another process can append too, so that a
// sender also looks from time to time.
func (s *Store) Changed() <-chan struct{} { return s.changed }

func (s *Store) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
