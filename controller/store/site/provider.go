package site

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
)

// recordProviders stores what providers say, a machine at a time, and compares it with what the node's state lets
// expect. It opens nothing: drift is a condition, and for people to judge.
func (s *Store) recordProviders(ctx context.Context, r SiteReport, now time.Time) error {
	for _, o := range r.Providers {
		err := s.db.InTx(ctx,
			func(_ pgx.Tx, q *dbsqlc.Queries) error { return nodestate.RecordProvider(ctx, q, r.Site, o, now) })
		if err != nil {
			return err
		}
	}
	return nil
}
