// Command init is the program of a machine that is measured from inside; package guest has it.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/ingot-metal/ingot/agent/pid1"
	"github.com/ingot-metal/ingot/lab/bench/metal/guest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := pid1.Run(ctx, slog.Default(), func(sys *pid1.System) error { return guest.Run(ctx, sys) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
		os.Exit(1)
	}
}
