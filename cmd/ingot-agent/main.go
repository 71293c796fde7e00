// Command ingot-agent runs on a machine, or for the machines of a site; package cmdline has everything in it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/ingot-metal/ingot/agent/cmdline"
)

// version is set when a release is built.
var version string

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	return cmdline.Main(ctx, os.Args[1:], version)
}
