package pgtx

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	_ "github.com/ingot-metal/ingot/internal/failure/pgfailure" // database errors become typed failures
)

// Config is the connection to the database.
type Config struct {
	// URL is a libpq connection string.
	URL string
	// PoolSize bounds the connections; 0 means 16.
	PoolSize int32
	Logger   *slog.Logger
	// Now is the clock for calls without a time of their own; nil means time.Now.
	Now func() time.Time
	// Tracer watches the statements to the database; nil for none.
	Tracer pgx.QueryTracer
}

// DB is the pool of connections, and the transactions over it. It is safe for concurrent use.
// The hooks are set while the stores are wired, before the first use.
type DB struct {
	// Q runs each statement in a transaction of its own.
	Q   *dbsqlc.Queries
	Now func() time.Time
	Log *slog.Logger
	// Connected is called with each new connection before its first use; an error closes the connection.
	Connected func(ctx context.Context, conn *pgx.Conn) error
	// Committing does what belongs into a transaction that has noted something, before it commits.
	Committing func(ctx context.Context, tx pgx.Tx, notes []any) error
	// Committed is called with a transaction's notes, once that has committed.
	Committed func(notes []any)

	pool *pgxpool.Pool
	// statusLimit is how long the outcome of a transaction is read for.
	statusLimit time.Duration
}

// Open makes the pool. No connection is opened before the pool is asked for one.
func Open(ctx context.Context, c Config) (*DB, error) {
	pc, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("parse database url: %w", err)
	}
	pc.MaxConns = c.PoolSize
	if pc.MaxConns == 0 {
		pc.MaxConns = 16
	}
	if c.Tracer != nil {
		pc.ConnConfig.Tracer = c.Tracer
	}
	settings := sessionSettings(pc.ConnConfig.RuntimeParams)
	pc.ConnConfig.RuntimeParams = map[string]string{}
	name := settings[applicationName]
	delete(settings, applicationName)
	pc.ConnConfig.RuntimeParams[applicationName] = name
	db := &DB{Log: c.Logger, Now: c.Now, statusLimit: statusLimit}
	if db.Log == nil {
		db.Log = slog.Default()
	}
	if db.Now == nil {
		db.Now = time.Now
	}
	pc.MinConns, pc.MinIdleConns = 0, 0
	pc.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := setAll(ctx, conn, settings); err != nil {
			return err
		}
		return db.Connected(ctx, conn)
	}
	db.pool, err = pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open database pool: %w", err)
	}
	db.Q = dbsqlc.New(db.pool)
	return db, nil
}

// Pool returns the connections, for those who share them.
func (s *DB) Pool() *pgxpool.Pool { return s.pool }

// Close ends all connections.
func (s *DB) Close() { s.pool.Close() }

// Ping reports whether the database answers.
func (s *DB) Ping(ctx context.Context) error {
	if err := s.pool.Ping(ctx); err != nil {
		return fmt.Errorf("reach the database: %w", err)
	}
	return nil
}

// Later returns now plus the time since asked: a change that has waited for its locks must not be stored with a time
// before the changes of others meanwhile. It is in whole microseconds, as Postgres keeps them.
func (s *DB) Later(now, asked time.Time) time.Time {
	return now.Add(max(0, s.Now().Sub(asked)).Truncate(time.Microsecond))
}

// LaterIn returns now plus the time since the queries' transaction was asked for: see Later.
func (s *DB) LaterIn(q *dbsqlc.Queries, now time.Time) time.Time {
	a, ok := q.Handle().(*Postcommit)
	if !ok || a.asked.IsZero() {
		return now
	}
	return s.Later(now, a.asked)
}
