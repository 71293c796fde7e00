// Command testpg runs a private PostgreSQL for tests.
//
//	testpg run -- go test ./...   starts a server, sets INGOT_TEST_DATABASE_URL, runs the command, stops the server
//	testpg start                  starts one that stays (one per user), and prints the line to evaluate in a shell
//	testpg stop                   stops that one and removes its data
//
// The exit status of run is the command's.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/localpg"
	"github.com/ingot-metal/ingot/internal/testkit"
)

const usage = "usage: testpg start | stop | run -- command [argument]…"

func main() {
	code, err := dispatch(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testpg:", err)
	}
	os.Exit(code)
}

func dispatch(args []string) (code int, err error) {
	switch {
	case len(args) == 1 && args[0] == "start":
		return report(start())
	case len(args) == 1 && args[0] == "stop":
		return report(stop())
	case len(args) > 2 && args[0] == "run" && args[1] == "--":
		return run(args[2:])
	}
	return 2, errors.New(usage)
}

func report(err error) (int, error) {
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// stayingDir holds the server that start leaves behind.
func stayingDir() string {
	return filepath.Join(os.TempDir(), "ingot-testpg-"+strconv.Itoa(os.Getuid()))
}

func openStaying() (*localpg.Cluster, error) {
	return localpg.Open(context.Background(), localpg.Config{
		Dir: stayingDir(), Settings: testkit.ServerSettings(), Logger: slog.New(slog.DiscardHandler),
	})
}

func start() error {
	c, err := openStaying()
	if err != nil {
		return err
	}
	fmt.Printf("export %s='%s'\n", testkit.EnvDatabaseURL, c.URL(localpg.Database))
	return nil // the server outlives us; the lock does not
}

func stop() error {
	if _, err := os.Stat(stayingDir()); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	c, err := openStaying()
	if err != nil {
		return err
	}
	if err := stopCluster(c); err != nil {
		return err
	}
	return os.RemoveAll(stayingDir())
}

func stopCluster(c *localpg.Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return c.Stop(ctx)
}

// run leaves the terminal's signals to the command: it ends of them, and then we do. (Ignoring them would make the
// command ignore them too.)
func run(command []string) (int, error) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGQUIT)
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	c, err := testkit.StartServer()
	if err != nil {
		return 1, err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), testkit.EnvDatabaseURL+"="+c.URL(localpg.Database))
	err = cmd.Run()
	stopErr := stopCluster(c)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), stopErr
	}
	if err := errors.Join(err, stopErr); err != nil {
		return 1, err
	}
	return 0, nil
}
