// Command ingot-image builds what machines boot from: installers and disk images; package imagebuild/cmdline has
// everything in it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/ingot-metal/ingot/imagebuild/cmdline"
)

// version is set when a release is built.
var version string

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cmdline.Main(ctx, os.Args[1:], os.Stdout, os.Stderr, version)
}
