// Command ingot is the command line of Ingot; package cli has everything in it.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/ingot-metal/ingot/cli"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/internal/clock"
)

// version is set when a release is built.
var version string

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second interrupt ends the program at once.
	context.AfterFunc(ctx, stop)
	return cli.Run(ctx, command.Config{
		Args: os.Args[1:], In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		OutTerminal: isTerminal(os.Stdout),
		ErrTerminal: isTerminal(os.Stderr),
		Getenv:      os.Getenv,
		Clock:       clock.Real(),
		Zone:        time.Local,
		Connect:     client.Dial,
		Version:     buildVersion(),

		ReadPassword: passwordReader(ctx, int(os.Stdin.Fd())),
	})
}

// passwordReader reads from a terminal without an echo; nil where there is none. An interrupt leaves the terminal as it
// was.
func passwordReader(ctx context.Context, fd int) func() ([]byte, error) {
	if !term.IsTerminal(fd) {
		return nil
	}
	return func() ([]byte, error) {
		state, err := term.GetState(fd)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() {
			_ = term.Restore(fd, state) // the process ends; the error has no reader
			os.Exit(130)
		})
		defer stop()
		return term.ReadPassword(fd)
	}
}

func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
