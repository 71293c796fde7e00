package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/lab/benchrig"
)

// rig is the database, the controller and a client.
type rig struct {
	*benchrig.Rig
	o     options
	store *store.Store
	// second is the token of another client.
	second string
}

func newRig(ctx context.Context, o options) (g *rig, err error) {
	g = &rig{o: o}
	g.Rig, err = benchrig.Open(ctx, benchrig.Config{
		Bin: o.bin, Keep: o.keep, InProcess: o.profile != "", Settings: "log: {level: warn}\n",
	})
	if err != nil {
		return nil, err
	}
	if err := g.open(ctx); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *rig) open(ctx context.Context) (err error) {
	if g.second, err = auth.AddToken(g.Path("tokens"), "polite", auth.ScopeRead); err != nil {
		return err
	}
	if err := g.Up(ctx, 1); err != nil {
		return err
	}
	g.store, err = store.New(ctx, store.Config{URL: g.URL, PoolSize: 2, Logger: slog.New(slog.DiscardHandler)})
	return err
}

func (g *rig) close() error {
	if g.store != nil {
		g.store.Close()
	}
	return g.Close()
}

// used is the processor time of each of n things that fn does.
func (g *rig) used(n float64, fn func() error) (benchrig.CPUUse, error) {
	before, err := g.CPU()
	if err != nil {
		return benchrig.CPUUse{}, err
	}
	if err := fn(); err != nil {
		return benchrig.CPUUse{}, err
	}
	after, err := g.CPU()
	return after.Since(before, n), err
}
