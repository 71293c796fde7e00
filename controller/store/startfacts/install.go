package startfacts

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// Installation reads the facts that may rule out an image on a machine, besides its spec and its agents.
func Installation(ctx context.Context, q *dbsqlc.Queries, machineID, image string) (i start.Installation, err error) {
	err = q.Together(ctx,
		func(q *dbsqlc.Queries) error {
			row, err := q.ImageByRef(ctx, image)
			if err == nil {
				found := imageOf(row)
				i.Image = &found
			}
			return missing(err)
		},
		func(q *dbsqlc.Queries) (err error) {
			i.Inventory, err = inventoryOf(ctx, q, machineID)
			return missing(err)
		},
		func(q *dbsqlc.Queries) (err error) { i.Installers, err = installersOf(ctx, q); return err },
	)
	if err != nil {
		return i, fmt.Errorf("read what is known of an installation: %w", err)
	}
	return i, nil
}

// missing takes a missing row for no fact.
func missing(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}
