package operation

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// DecideInTx decides in a transaction that has begun.
func (s *Store) DecideInTx(
	ctx context.Context, tx pgx.Tx, operationID string, e operation.Event, now time.Time,
) (*Applied, error) {
	return s.DecideIn(ctx, s.db.Q.WithTx(&pgtx.Postcommit{Tx: tx}), operationID, e, now)
}
