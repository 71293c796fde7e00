// Package operation stores operations with their steps, commands, events and logs.
//
// One function, Apply, writes the state of operations, steps and commands, in one transaction, guarded by the
// operation's version and the command's state. The machine's row is always locked first.
package operation

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/incarnation"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds operations. It is safe for concurrent use.
type Store struct {
	db           *pgtx.DB
	machines     *machinestore.Store
	incarnations *incarnation.Store
	budgets      *budgetstore.Store
	catalog      *catalogstore.Store

	// Retire carries out a retirement that has waited for the end of an operation. It is set while the stores are
	// wired.
	Retire func(ctx context.Context, q *dbsqlc.Queries, machineID string, now time.Time) error

	enqueue func(context.Context, pgx.Tx, []*NewJob) error
	created func([]*NewJob)
	applied func(*Applied)
	// First are the first evaluations of new operations.
	First FirstEvaluations
	// changes are stored in sets.
	changes pgtx.Batcher[change, answer]
	// repeats finds a request that is being answered already.
	repeats pgtx.SingleFlight
}

// New returns a store over others. It tells what transactions have noted.
func New(db *pgtx.DB, machines *machinestore.Store, incarnations *incarnation.Store, budgets *budgetstore.Store,
	catalog *catalogstore.Store,
) *Store {
	s := &Store{db: db, machines: machines, incarnations: incarnations, budgets: budgets, catalog: catalog}
	s.First.db = db
	db.Committing, db.Committed = s.committing, s.tell
	s.changes = pgtx.Batcher[change, answer]{Batch: s.storeSet, Enough: setEnough, Patience: setPatience}
	return s
}
