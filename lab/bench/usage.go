package main

import (
	"context"

	"github.com/ingot-metal/ingot/lab/benchrig"
)

// usage is what has been used so far.
type usage struct {
	cpu benchrig.CPU
	// commits are the transactions of the controller's database that were committed.
	commits int64
}

func (g *rig) usage(ctx context.Context, agents ...int) (u usage, err error) {
	if u.cpu, err = g.CPU(agents...); err != nil {
		return u, err
	}
	err = g.Admin.QueryRow(ctx, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").Scan(
		&u.commits)
	return u, err
}
