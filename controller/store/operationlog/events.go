package operationlog

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// Event is one stored event of an operation, and where it stands in the feed.
type Event struct {
	Snapshot            *baremetalv1.Operation
	Kind, Step, Message string
	TS                  time.Time
	Seq                 int64
	Pos                 FeedPos
}

// FeedPos is a place in the feed of all operations' events.
type FeedPos struct {
	Xid       string
	Operation string
	Seq       int64
}

// FeedHead is the place from which a follower sees everything that commits from now on.
func (s *Store) FeedHead(ctx context.Context) (FeedPos, error) {
	xid, err := s.db.Q.FeedHead(ctx)
	if err != nil {
		return FeedPos{}, fmt.Errorf("read the feed's head: %w", err)
	}
	return FeedPos{Xid: xid}, nil
}

// Feed reads events of all operations after a place, in feed order.
func (s *Store) Feed(ctx context.Context, after FeedPos, limit int32) ([]Event, error) {
	if after.Xid == "" {
		after.Xid = "0"
	}
	rows, err := s.db.Q.EventFeed(ctx, dbsqlc.EventFeedParams{AfterXid: after.Xid, AfterOperation: after.Operation,
		AfterSeq: after.Seq, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return eventsFromRows(rows)
}

// EventsOf reads the events of one operation after a number.
func (s *Store) EventsOf(ctx context.Context, operationID string, after int64, limit int32) ([]Event, error) {
	rows, err := s.db.Q.EventsOf(ctx, dbsqlc.EventsOfParams{OperationID: operationID, AfterSeq: after, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return eventsFromRows(rows)
}

func eventsFromRows(rows []dbsqlc.OperationEvent) ([]Event, error) {
	out := make([]Event, 0, len(rows))
	for _, r := range rows {
		m := &baremetalv1.Operation{}
		if err := proto.Unmarshal(r.Snapshot, m); err != nil {
			return nil, fmt.Errorf("parse stored event: %w", err)
		}
		out = append(out, Event{
			Snapshot: m, Kind: r.Kind, Step: r.Step, Message: r.Message, TS: r.Ts, Seq: r.Seq,
			Pos: FeedPos{Xid: fmt.Sprint(r.ChangeXid), Operation: r.OperationID, Seq: r.Seq},
		})
	}
	return out, nil
}
