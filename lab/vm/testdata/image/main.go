// Command image is the userland of the machines in imagebuild's tests: it prints its boot parameters on the console.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/ingot-metal/ingot/agent/pid1"
)

func main() {
	if !pid1.IsInit() {
		fmt.Fprintln(os.Stderr, "image: runs as process 1 of a test machine only")
		os.Exit(2)
	}
	if err := pid1.Run(context.Background(), slog.Default(), guest); err != nil {
		slog.Error("guest failed", "error", err)
		os.Exit(1)
	}
}

func guest(sys *pid1.System) error {
	left, err := os.ReadFile(filepath.Join(sys.StateDir(), "image.json"))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	said, err := json.Marshal(map[string]any{"installer": sys.Installer(), "image": string(left)})
	if err != nil {
		return err
	}
	fmt.Printf("GUEST %s end\n", said)
	end, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	<-end.Done()
	return nil
}
