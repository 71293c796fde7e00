package incarnation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/position"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// place is what this process knows of how far the database has got. Its zero value knows nothing.
type place struct {
	mu sync.Mutex
	// connected is the server of the newest connection, compared the one that this process has compared, and sure the one
	// that all controllers have. doubt is called when the server changes.
	connected, compared, sure string
	doubt                     func()
	// mark is the last beat of this process that was committed, earlier that of the one before it.
	mark, earlier position.Mark
	// seen is what was committed here since the last comparison began, older what was before that and is not proven yet.
	seen, older position.Seen
}

// server names a server: its history, and its start.
func server(id dbsqlc.ServerIdentityRow) string {
	return id.WalHistory + "@" + id.StartedAt.UTC().Format(time.RFC3339Nano)
}

// met takes note of the server of a new connection. Connections to another one are given up.
func (s *Store) met(ctx context.Context, conn *pgx.Conn) error {
	id, err := dbsqlc.New(conn).ServerIdentity(ctx)
	if err != nil {
		return fmt.Errorf("identify the database server: %w", err)
	}
	pgtx.NoteServer(conn, pgtx.Server{
		History: id.WalHistory, Run: server(id) + "/" + id.RecoveredAt.UTC().Format(time.RFC3339Nano),
	})
	p := &s.place
	p.mu.Lock()
	before := p.connected
	p.connected = server(id)
	doubt := p.doubt
	changed := before != "" && before != p.connected
	p.mu.Unlock()
	if changed {
		s.db.Log.Warn("another database server answers than before", "before", before, "now", server(id))
		s.db.Pool().Reset()
		if doubt != nil {
			doubt()
		}
	}
	return nil
}

// OnDoubt sets the function that is called when another server answers than before. It must not block.
func (s *Store) OnDoubt(tell func()) {
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	s.place.doubt = tell
}

// PositionSure reports whether all controllers have compared the server that is connected with what they have seen.
func (s *Store) PositionSure() bool {
	p := &s.place
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.connected != "" && p.connected == p.sure
}

// RememberMark sets the last mark of an earlier start of this controller.
func (s *Store) RememberMark(m position.Mark) {
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	s.place.earlier = m
}

// NotePosition remembers what was committed: a version of an operation, and a grant of its command.
func (s *Store) NotePosition(operationID string, version int64, commandID string, grantSeq int64) {
	p := &s.place
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Note(operationID, version, commandID, grantSeq)
}

// Comparison is what came of comparing the database with what this controller has seen of it.
type Comparison struct {
	// Mark is the beat that was committed with the comparison.
	Mark position.Mark
	// Lost is what the database lacks; empty when it lacks nothing. The fleet is frozen then.
	Lost string
	// Waiting: other controllers have not compared this server yet.
	Waiting bool
	// Anew: the database is of another incarnation than at the last comparison. It may not know the sessions that are
	// open.
	Anew bool
}

// errLost ends the comparison's transaction where something is missing.
var errLost = errors.New("the database lacks what was committed")

// ComparePosition looks whether the database still has what this controller has seen committed, and counts the
// controller's beat up. Where something is missing it freezes the fleet.
func (s *Store) ComparePosition(ctx context.Context, controllerID string, now time.Time) (Comparison, error) {
	c := comparing{controllerID: controllerID, now: now}
	s.place.begin(&c)
	tried := c
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		tried = c // what a try before this one has counted was not committed
		return tried.run(ctx, q)
	})
	c = tried
	if errors.Is(err, errLost) {
		err = s.wentBack(ctx, &c)
	}
	if err != nil {
		return Comparison{}, fmt.Errorf("compare the database's position: %w", err)
	}
	s.place.end(&c)
	return Comparison{
		Mark: c.mark, Lost: c.lost, Waiting: c.lost == "" && !c.agreed,
		Anew: c.lost != "" || c.before != "" && c.before != c.mark.Incarnation,
	}, nil
}

// comparing is one comparison.
type comparing struct {
	controllerID  string
	now           time.Time
	compared      string // the server that was compared last
	before        string // the incarnation at that time
	mark, earlier position.Mark
	seen          position.Seen

	server string
	agreed bool
	lost   string
}

func (p *place) begin(c *comparing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.older.Add(p.seen)
	p.seen = position.Seen{}
	c.before = p.mark.Incarnation
	c.compared, c.mark, c.earlier, c.seen = p.compared, p.mark, p.earlier, p.older
}

// end takes over what was found. What was seen before the beat is proven by it.
func (p *place) end(c *comparing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.older, p.mark = position.Seen{}, c.mark
	if c.lost != "" {
		// The rest belongs to the history that is gone.
		p.seen, p.earlier, p.mark = position.Seen{}, position.Mark{}, position.Mark{}
		return
	}
	p.compared, p.earlier = c.server, position.Mark{}
	if c.agreed {
		p.sure = c.server
	}
}

func (c *comparing) run(ctx context.Context, q *dbsqlc.Queries) error {
	id, err := q.ServerIdentity(ctx)
	if err != nil {
		return fmt.Errorf("identify the database server: %w", err)
	}
	c.server = server(id)
	at, err := q.PositionOf(ctx, c.controllerID)
	if err != nil {
		return fmt.Errorf("read the stored position: %w", err)
	}
	if c.lost, err = c.missing(ctx, q, at); err != nil {
		return err
	}
	if c.lost != "" {
		return errLost
	}
	beat, err := q.Beat(ctx, dbsqlc.BeatParams{ControllerID: c.controllerID, WalHistory: id.WalHistory})
	if err != nil {
		return fmt.Errorf("count the beat: %w", err)
	}
	c.mark = position.Mark{Incarnation: at.Incarnation, ControllerID: c.controllerID, Beat: beat, At: c.now}
	if c.agreed = at.Compared == id.WalHistory; c.agreed {
		return nil
	}
	n, err := q.ConcludeComparison(ctx, dbsqlc.ConcludeComparisonParams{WalHistory: id.WalHistory,
		Incarnation: at.Incarnation, Now: c.now})
	c.agreed = n > 0
	return pgtx.Wrap(err, "conclude the comparison")
}

// missing returns what the database lacks. Nothing is expected of another incarnation: its begin was recorded already.
func (c *comparing) missing(ctx context.Context, q *dbsqlc.Queries, at dbsqlc.PositionOfRow) (string, error) {
	if lost := c.mark.Lost(at.Incarnation, at.Beat, c.now); lost != "" {
		return lost, nil
	}
	if c.earlier.Beat > 0 {
		before, err := q.PositionOf(ctx, c.earlier.ControllerID)
		if err != nil {
			return "", fmt.Errorf("read the position of an earlier start: %w", err)
		}
		if lost := c.earlier.Lost(at.Incarnation, before.Beat, c.now); lost != "" {
			return lost, nil
		}
	}
	if c.compared == "" || c.compared == c.server || c.mark.Incarnation != at.Incarnation {
		return "", nil // the same server forgets nothing
	}
	ids, versions := position.Pairs(c.seen.Operations)
	operations, err := q.LostOperations(ctx, dbsqlc.LostOperationsParams{OperationIds: ids, Versions: versions})
	if err != nil {
		return "", fmt.Errorf("compare operations: %w", err)
	}
	ids, seqs := position.Pairs(c.seen.Grants)
	grants, err := q.LostGrants(ctx, dbsqlc.LostGrantsParams{CommandIds: ids, Seqs: seqs})
	if err != nil {
		return "", fmt.Errorf("compare grants: %w", err)
	}
	return position.Missing(operations, grants), nil
}

// verbWentBack marks in the audit log that controllers noticed that the database has gone back.
const verbWentBack = "DATABASE_WENT_BACK"

// wentBack freezes the fleet after a comparison, unless another incarnation has begun since then.
func (s *Store) wentBack(ctx context.Context, c *comparing) error {
	_, err := s.noticeLoss(ctx, c.lost, c.now, func(state dbsqlc.ClusterState) bool {
		known := c.mark.Incarnation
		if known == "" {
			known = c.earlier.Incarnation
		}
		return state.Incarnation == known
	})
	return err
}

// GrantWasLost freezes the fleet if the database lacks a grant that a controller has signed. It reports whether it did.
// A grant from before the last restore is expected to be missing.
func (s *Store) GrantWasLost(
	ctx context.Context, commandID string, seq uint64, agentID string, issued, now time.Time,
) (bool, error) {
	lost, err := s.grants.Do(ctx, grantSeen{commandID, int64(seq)})
	if err != nil || !lost {
		return false, err
	}
	what := fmt.Sprintf("agent %s has begun command %s under a grant of %s, which the database does not know", agentID,
		commandID, stampText(issued))
	return s.noticeLoss(ctx, what, now, func(state dbsqlc.ClusterState) bool {
		return state.RestoredAt == nil || issued.After(*state.RestoredAt)
	})
}

func stampText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// grantSeen is a grant that an agent holds.
type grantSeen struct {
	commandID string
	seq       int64
}

// lostGrants reports for each grant whether the database lacks it.
func (s *Store) lostGrants(ctx context.Context, lot []grantSeen) ([]bool, error) {
	var p dbsqlc.LostGrantsParams
	for _, g := range lot {
		p.CommandIds, p.Seqs = append(p.CommandIds, g.commandID), append(p.Seqs, g.seq)
	}
	ids, err := s.db.Q.LostGrants(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("compare grants: %w", err)
	}
	lost := map[string]bool{}
	for _, id := range ids {
		lost[id] = true
	}
	out := make([]bool, len(lot))
	for i, g := range lot {
		out[i] = lost[g.commandID]
	}
	return out, nil
}

// noticeLoss begins a new incarnation and freezes the fleet, if news returns true for the stored state.
func (s *Store) noticeLoss(
	ctx context.Context, what string, now time.Time, news func(dbsqlc.ClusterState) bool,
) (noticed bool, err error) {
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		state, err := q.LockClusterState(ctx)
		if err != nil {
			return fmt.Errorf("lock the cluster's state: %w", err)
		}
		if noticed = news(state); !noticed {
			return nil
		}
		return newIncarnation(ctx, q, state, history.AuditEntry{Actor: "system", Verb: verbWentBack, Comment: what}, now)
	})
	if err != nil {
		return false, fmt.Errorf("freeze the fleet over a database that has gone back: %w", err)
	}
	return noticed, nil
}

// newIncarnation freezes the fleet and ends the history that cursors know. Change ids of another system may lie above
// every transaction of this one, so they are made anew; those of the same system never do.
func newIncarnation(
	ctx context.Context, q *dbsqlc.Queries, state dbsqlc.ClusterState, why history.AuditEntry, now time.Time,
) error {
	id, err := q.ServerIdentity(ctx)
	if err != nil {
		return fmt.Errorf("identify the database server: %w", err)
	}
	if systemOf(state.WalHistory) != systemOf(id.WalHistory) || why.Verb == verbRestored {
		if err := restamp(ctx, q); err != nil {
			return err
		}
	}
	if err := history.Audit(ctx, q, why, now); err != nil {
		return err
	}
	if err := q.NoteRestore(ctx); err != nil {
		return fmt.Errorf("note in histories where the copy ends: %w", err)
	}
	return q.NewIncarnation(ctx, dbsqlc.NewIncarnationParams{Now: &now, WalHistory: id.WalHistory})
}

func systemOf(history string) string {
	id, _, _ := strings.Cut(history, "/")
	return id
}

func restamp(ctx context.Context, q *dbsqlc.Queries) error {
	if err := q.RestampMachines(ctx); err != nil {
		return err
	}
	if err := q.RestampEvents(ctx); err != nil {
		return err
	}
	// Their change ids are of before, too, and every cursor has expired.
	if err := q.ForgetAllDepartures(ctx); err != nil {
		return err
	}
	// The events have new change ids and are not news.
	return q.SkipWebhookFeed(ctx)
}
