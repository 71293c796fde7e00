package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	_ "github.com/ingot-metal/ingot/internal/failure/pgfailure" // database errors become typed failures
)

// Config says how to reach the database.
type Config struct {
	// URL is a libpq connection string.
	URL string
	// PoolSize bounds the connections; 0 means 16.
	PoolSize int32
	// StepDefaults fill what a plan leaves open.
	StepDefaults StepDefaults
	// InstallerCmdline is added to the kernel command line of every installer.
	InstallerCmdline string
	// DefaultImage is used where neither a request nor the machine names an image.
	DefaultImage string
	Logger       *slog.Logger
	// Now is the time for what has no time of its own; nil means time.Now.
	Now func() time.Time
	// Tracer watches what is sent to the database; nil for none.
	Tracer pgx.QueryTracer
}

// Store is the controller's database. It is safe for concurrent use.
type Store struct {
	now      func() time.Time
	pool     *pgxpool.Pool
	q        *dbsqlc.Queries
	defaults StepDefaults
	image    string
	cmdline  string
	log      *slog.Logger
	created  func(operationID string)
	deliver  EnqueueDeliveries
	// committed is told what a transaction has noted, once that has committed.
	committed func(notes []any)
	// preload reads for several changes what each of them begins with. Their machines are locked.
	preload func(context.Context, *dbsqlc.Queries, []about, []dbsqlc.Machine, time.Time) (any, error)
	// retire carries out a retirement that has waited for the end of an operation.
	retire  func(ctx context.Context, q *dbsqlc.Queries, machineID string, now time.Time) error
	applied func(*Applied)
	room    func()
	groups  groups
	repeats repeats
	hellos  *hellos
	certs   gathered[string, *Cert]
	grants  gathered[grantSeen, bool]
	reach   fleetSlices
	shares  fleetShares
	place   place
	// plans that have been used, by their ids.
	plans sync.Map
}

// New connects. It does not migrate.
func New(ctx context.Context, c Config) (*Store, error) {
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
	// Transactions that stay open hold back every reader of the reconcile cursor: bound them.
	setDefault(pc.ConnConfig.RuntimeParams, "idle_in_transaction_session_timeout", "10000")
	setDefault(pc.ConnConfig.RuntimeParams, "statement_timeout", "30000")
	// No statement here is worth compiling, whatever the planner thinks that it costs.
	setDefault(pc.ConnConfig.RuntimeParams, "jit", "off")
	// What is asked for often is in memory. Taken for a disk that seeks, tables of a few thousand rows are read as a whole for each
	// handful of ids, all the longer as a plan that was made for a young database is kept.
	setDefault(pc.ConnConfig.RuntimeParams, "random_page_cost", "1.1")
	setDefault(pc.ConnConfig.RuntimeParams, "application_name", "ingot-controller")
	log := c.Logger
	if log == nil {
		log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Store{now: c.Now, defaults: orBuiltIn(c.StepDefaults), image: c.DefaultImage, cmdline: c.InstallerCmdline, log: log}
	// No connection is opened before the pool is asked for one.
	pc.MinConns, pc.MinIdleConns, pc.AfterConnect = 0, 0, s.met
	s.pool, err = pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open database pool: %w", err)
	}
	s.q = dbsqlc.New(s.pool)
	s.hellos, s.certs.fn, s.grants.fn = newHellos(s), s.knownCerts, s.lostGrants
	s.committed, s.retire = s.tell, s.retireNow
	s.preload = func(ctx context.Context, q *dbsqlc.Queries, changes []about, locked []dbsqlc.Machine, now time.Time) (any, error) {
		return readFacts(ctx, q, changes, locked, now)
	}
	return s, nil
}

func setDefault(params map[string]string, key, value string) {
	if _, ok := params[key]; !ok {
		params[key] = value
	}
}

// OnCreated sets the function that is told of new operations once they have committed. It must not block. An operation of which
// nobody is told is looked at all the same, when its wake_at has come.
func (s *Store) OnCreated(tell func(operationID string)) { s.created = tell }

// Pool gives River the same connections.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Close ends all connections.
func (s *Store) Close() { s.pool.Close() }

// Ping says whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.pool.Ping(ctx); err != nil {
		return fmt.Errorf("reach the database: %w", err)
	}
	return nil
}

const maxTries = 5

// inTx runs fn in a transaction and commits. Conflicts that a repeat can solve are repeated.
func (s *Store) inTx(ctx context.Context, fn func(tx pgx.Tx, q *dbsqlc.Queries) error) error {
	var err error
	for range maxTries {
		var a *after
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			a = &after{Tx: tx}
			return fn(tx, s.q.WithTx(a))
		})
		if err == nil {
			s.committed(a.notes)
		}
		if !repeatable(err) {
			return err
		}
	}
	return err
}

var errLostVersion = errors.New("the operation has changed meanwhile")

func repeatable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "40001" || pg.Code == "40P01"
	}
	return errors.Is(err, errLostVersion)
}

// uniqueViolation says whether err broke the named constraint.
func uniqueViolation(err error, constraint string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505" && pg.ConstraintName == constraint
}

func timePtr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func timeVal(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func strVal(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func strPtr(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
