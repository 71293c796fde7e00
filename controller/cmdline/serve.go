package cmdline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/gctune"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

// serve runs the controller with what an operating system expects around it: signals, systemd, and with --dev a
// database and a token of its own.
func serve(ctx context.Context, c config.Config, o controller.Options, addressesFile string) error {
	if c.Dev {
		if err := devToken(c, o.Logger); err != nil {
			return err
		}
	}
	url, stop, err := controller.OpenDatabase(ctx, c, o.Logger)
	if err != nil {
		return err
	}
	defer stop()
	c.Database.URL = url
	ctl, err := controller.New(ctx, c, o)
	if err != nil {
		return err
	}
	if err := announce(ctl, addressesFile); err != nil {
		return err
	}
	g, _ := task.New(ctx)
	g.Go("controller", ctl.Run)
	g.Go("headroom", gctune.Keep)
	g.Go("reload", func(ctx context.Context) error { return reloadOnHangup(ctx, ctl) })
	g.Go("watchdog", watchdog)
	notify(o.Logger, daemon.SdNotifyReady)
	err = g.Wait()
	notify(o.Logger, daemon.SdNotifyStopping)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// devToken makes an admin token for a data directory that has none, and leaves it beside the CA for the command line.
func devToken(c config.Config, log *slog.Logger) error {
	path := filepath.Join(c.DataDir, "admin-token")
	if _, err := os.Stat(c.TokensFile); err == nil {
		return nil
	}
	if err := os.MkdirAll(c.DataDir, 0o711); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	scope, err := access.ParseScope("admin")
	if err != nil {
		return err
	}
	secret, err := auth.AddToken(c.TokensFile, "dev-admin", scope)
	if err != nil {
		return err
	}
	log.Info("made an admin token", "file", path)
	return pki.WriteFile(path, []byte(secret+"\n"), 0o600)
}

// announce writes the addresses, for a starter with port 0.
func announce(ctl *controller.Controller, path string) error {
	if path != "" {
		b, err := json.Marshal(ctl.Addresses())
		if err != nil {
			return fmt.Errorf("serialize addresses: %w", err)
		}
		if err := pki.WriteFile(path, append(b, '\n'), 0o644); err != nil {
			return fmt.Errorf("write addresses: %w", err)
		}
	}
	return nil
}

func reloadOnHangup(ctx context.Context, ctl *controller.Controller) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
			// The log has the reason; the old tokens stay in force.
			_ = ctl.Reload()
		}
	}
}

// watchdog notifies systemd that we are alive, if systemd asks for it.
func watchdog(ctx context.Context) error {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		<-ctx.Done()
		return nil
	}
	t := time.NewTicker(every / 3)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
				return fmt.Errorf("notify systemd: %w", err)
			}
		}
	}
}

func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd not notified", "error", err.Error())
	}
}
