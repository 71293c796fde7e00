package state

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Retention is how long a settled command is remembered, so that a late repeat is answered and not executed.
const Retention = 7 * 24 * time.Hour

// MaxEvents is the cap of the event buffer.
const MaxEvents = 10_000

// FileName is the database in the state directory.
const FileName = "agent.db"

const schema = `
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS commands (
	command_id  TEXT PRIMARY KEY,
	target_id   TEXT NOT NULL,
	spec        BLOB NOT NULL,
	digest      BLOB NOT NULL,
	state       TEXT NOT NULL CHECK (state IN ('RECEIVED', 'STARTED', 'DONE')),
	boot_id     TEXT NOT NULL,
	intent      BLOB,
	result      BLOB,
	received_ms INTEGER NOT NULL,
	started_ms  INTEGER NOT NULL DEFAULT 0,
	done_ms     INTEGER NOT NULL DEFAULT 0,
	settled     INTEGER NOT NULL DEFAULT 0,
	CHECK (state <> 'STARTED' OR intent IS NOT NULL),
	CHECK (state <> 'DONE' OR result IS NOT NULL)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS commands_open ON commands (settled, state);
CREATE TABLE IF NOT EXISTS events (
	seq      INTEGER PRIMARY KEY,
	priority INTEGER NOT NULL,
	body     BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS events_priority ON events (priority, seq);
CREATE TABLE IF NOT EXISTS dropped (priority INTEGER PRIMARY KEY, n INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS site_document (
	id       INTEGER PRIMARY KEY CHECK (id = 1),
	revision INTEGER NOT NULL,
	body     BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS leases (
	segment TEXT NOT NULL,
	address TEXT NOT NULL,
	body    BLOB NOT NULL,
	PRIMARY KEY (segment, address)
) WITHOUT ROWID;
`

// Config has the place and the limits of the state.
type Config struct {
	// Dir holds the database file. It must exist. Not used with InMemory.
	Dir string
	// InMemory keeps the database in memory: it survives Reopen and nothing else. For benchmarks and tests.
	InMemory bool
	// MaxEvents overrides the cap of the event buffer; 0 means MaxEvents.
	MaxEvents int
}

// Store is one handle on the agent's memory. It is safe for concurrent use, and several processes may have
// the same file open (the lock verb does).
type Store struct {
	db        *sql.DB
	maxEvents int
	changed   chan struct{}

	writes *writer

	mu     sync.RWMutex // held for reading by every access, for writing by Fence
	fenced bool
}

// Open opens or makes the database.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	db, err := sql.Open("sqlite", dsn(cfg))
	if err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	// One connection: SQLite has one writer anyway, and a database in memory belongs to its connection.
	db.SetMaxOpenConns(1)
	s := newHandle(db, cfg.MaxEvents)
	if err := s.init(ctx); err != nil {
		return nil, closeAfter(db, err)
	}
	return s, nil
}

func newHandle(db *sql.DB, maxEvents int) *Store {
	if maxEvents == 0 {
		maxEvents = MaxEvents
	}
	return &Store{db: db, maxEvents: maxEvents, changed: make(chan struct{}, 1), writes: newWriter(db)}
}

func dsn(cfg Config) string {
	q := url.Values{"_txlock": {"immediate"}}
	q["_pragma"] = []string{"busy_timeout(5000)", "foreign_keys(1)", "cache_size(-256)"}
	if cfg.InMemory {
		return "file::memory:?" + q.Encode()
	}
	q["_pragma"] = append(q["_pragma"], "journal_mode(WAL)", "synchronous(FULL)")
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.Join(cfg.Dir, FileName)}).EscapedPath(),
		RawQuery: q.Encode()}
	return u.String()
}

func (s *Store) init(ctx context.Context) error {
	return s.write(ctx, "prepare state", func(tx *sql.Tx) error {
		if _, err := tx.Exec(schema); err != nil {
			return err
		}
		return ensureStateID(tx)
	})
}

func closeAfter(db *sql.DB, err error) error {
	if cerr := db.Close(); cerr != nil {
		return fmt.Errorf("%w (and close: %w)", err, cerr)
	}
	return err
}

// Close ends the handle and the database.
func (s *Store) Close() error {
	s.Fence()
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close state: %w", err)
	}
	return nil
}

// Fence waits for calls in flight. Later uses of this handle return ErrFenced.
func (s *Store) Fence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fenced = true
}

// Reopen fences this handle and returns a new one on the same database, as after a restart of the process.
func (s *Store) Reopen() *Store {
	s.Fence()
	return newHandle(s.db, s.maxEvents)
}

// LimitBytes makes the database refuse to grow beyond n bytes, as a full disk would. It serves tests and
// small state partitions. 0 removes the limit.
func (s *Store) LimitBytes(ctx context.Context, n int64) error {
	return s.read(ctx, "limit size of state", func() error {
		pages := int64(1) << 31
		if n > 0 {
			var size int64
			if err := s.db.QueryRowContext(ctx, "PRAGMA page_size").Scan(&size); err != nil {
				return err
			}
			pages = max(1, n/size)
		}
		_, err := s.db.ExecContext(ctx, "PRAGMA max_page_count = "+strconv.FormatInt(pages, 10))
		return err
	})
}

// Writable proves that a small write can be made durable now.
func (s *Store) Writable(ctx context.Context) error {
	return s.write(ctx, "write to state", func(tx *sql.Tx) error {
		return setMeta(tx, "probe", []byte(time.Now().UTC().Format(time.RFC3339Nano)))
	})
}

func (s *Store) read(_ context.Context, what string, fn func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.fenced {
		return fmt.Errorf("%s: %w", what, ErrFenced)
	}
	return classify(what, fn())
}

// write makes what fn does durable, or none of it. Ending ctx does not interrupt it: a graceful stop must not lose a
// write in progress.
func (s *Store) write(ctx context.Context, what string, fn func(*sql.Tx) error) error {
	return s.read(ctx, what, func() error { return s.writes.do(fn) })
}
