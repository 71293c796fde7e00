package controller

import (
	"context"
	"log/slog"

	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/embeddedpg"
	"github.com/ingot-metal/ingot/internal/task"
)

// OpenDatabase returns the URL of the configured database. With Dev it starts a private one first, or finds the one
// that outlived a killed controller; stop ends it.
func OpenDatabase(ctx context.Context, c config.Config, log *slog.Logger) (url string, stop func(), err error) {
	if !c.Dev {
		return c.Database.URL, func() {}, nil
	}
	pg, err := embeddedpg.Open(ctx, embeddedpg.Config{DataDir: c.DataDir, Logger: log})
	if err != nil {
		return "", nil, err
	}
	// It must outlive the controller, so it does not end with ctx but when told.
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	task.Background("private database", func() {
		defer close(done)
		if err := pg.Run(runCtx); err != nil && log != nil {
			log.Error("private database", "error", err.Error())
		}
	})
	return pg.URL(), func() { cancel(); <-done }, nil
}
