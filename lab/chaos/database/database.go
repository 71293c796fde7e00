// Package database is the PostgreSQL of a system: a server that can be killed, stopped, filled and replaced by its
// standby.
package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/localpg"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/measure"
	"github.com/ingot-metal/ingot/lab/standby"
)

// Server is a private PostgreSQL that can be killed, stopped and started again on the same data.
type Server struct {
	// Busy is held by a fault of the server.
	Busy sync.Mutex

	mu      sync.Mutex
	cluster *localpg.Cluster

	dir     string
	mounted bool // it has a file system of its own

	standby  *localpg.Cluster // nil where it has none
	standbys int              // how many there have been
}

// databaseSize is the room that a server has, where it has a file system of its own.
const databaseSize = "320m"

// pgSettings leave out fsync: a fault kills the server, not the machine under it.
var pgSettings = map[string]string{
	"max_connections": "120", "shared_buffers": "32MB", "fsync": "off", "wal_level": "minimal", "max_wal_senders": "0",
	"max_prepared_transactions": "0", "checkpoint_timeout": "30min", "max_wal_size": "64MB",
}

// Open starts a server below dir, with a synchronous standby where paired is true.
func Open(ctx context.Context, dir string, paired bool) (*Server, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	p := &Server{dir: dir, mounted: program.Mount(dir, "size="+sizeOf(paired)+",mode=0711")}
	c, err := localpg.Open(ctx, localpg.Config{Dir: dir, Settings: settingsOf(paired),
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, errors.Join(err, p.unmount())
	}
	p.cluster = c
	if paired {
		err = p.Attach(ctx)
	}
	return p, err
}

func (p *Server) unmount() error {
	if !p.mounted {
		return nil
	}
	return unix.Unmount(p.dir, unix.MNT_DETACH)
}

// Pid is the process id of the postmaster.
func (p *Server) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cluster.Pid()
}

func (p *Server) ballast() string { return filepath.Join(p.dir, "ballast") }

// Fill leaves the server no room: neither for tables nor for its log.
func (p *Server) Fill() (took bool, err error) {
	if !p.mounted {
		return false, nil
	}
	err = program.Fill(p.ballast())
	return err == nil, err
}

// Empty makes room again.
func (p *Server) Empty() error { return program.Empty(p.ballast()) }

// Socket is where it listens.
func (p *Server) Socket() (string, error) {
	u, err := url.Parse(p.cluster.URL(localpg.Database))
	if err != nil {
		return "", fmt.Errorf("parse the database's URL: %w", err)
	}
	return filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432"), nil
}

// URLBy is the database as reached through a relay.
func URLBy(address string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&connect_timeout=2", localpg.User, address, localpg.Database)
}

// Kill sends SIGKILL to the postmaster; its children see it and go.
func (p *Server) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return syscall.Kill(p.cluster.Pid(), syscall.SIGKILL)
}

// Start starts it where it does not run, and waits until it answers: one that ran out of room may still be recovering,
// or about to end.
func (p *Server) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cluster.Restart(ctx)
}

// Signal reaches the postmaster and all of its children.
func (p *Server) Signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	children, err := measure.Children(p.cluster.Pid())
	errs := []error{err}
	for _, pid := range append([]int{p.cluster.Pid()}, children...) {
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Close stops the server and its standby.
func (p *Server) Close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.closeStandby(ctx), p.cluster.Stop(ctx), p.unmount())
}

// pairSize is the room that a server has together with its standby.
const pairSize = "800m"

func sizeOf(paired bool) string {
	if paired {
		return pairSize
	}
	return databaseSize
}

// settingsOf are a server's, with what a standby needs where there is one.
func settingsOf(paired bool) map[string]string {
	if !paired {
		return pgSettings
	}
	out := maps.Clone(pgSettings)
	maps.Copy(out, standby.Settings())
	return out
}

// Attach starts a synchronous standby of the server.
func (p *Server) Attach(ctx context.Context) error {
	socket, err := p.Socket()
	if err != nil {
		return err
	}
	p.standbys++
	p.standby, err = standby.Attach(ctx, p.cluster, localpg.Config{
		Dir: p.homeOf(p.standbys), Settings: settingsOf(true), Logger: slog.New(slog.DiscardHandler),
	}, "host="+filepath.Dir(socket)+" port=5432", true)
	return err
}

// homeOf is the directory of the nth standby; the first server's is that of all.
func (p *Server) homeOf(n int) string {
	if n == 0 {
		return p.dir
	}
	return filepath.Join(p.dir, fmt.Sprint("standby-", n))
}

// Home is the directory of the server that has a standby: it was the standby before that one.
func (p *Server) Home() string { return p.homeOf(p.standbys - 1) }

func (p *Server) closeStandby(ctx context.Context) error {
	if p.standby == nil {
		return nil
	}
	return p.standby.Stop(ctx)
}

// Promote makes the standby the server, and returns the one that it followed.
func (p *Server) Promote(ctx context.Context) (old *localpg.Cluster, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := errors.Join(p.standby.Promote(ctx), standby.Detach(ctx, p.standby)); err != nil {
		return nil, err
	}
	old, p.cluster, p.standby = p.cluster, p.standby, nil
	return old, nil
}

// Bury releases what a dead server has held. The first one's directory is that of all, and keeps its log.
func (p *Server) Bury(ctx context.Context, old *localpg.Cluster, home string) error {
	return errors.Join(old.Stop(ctx), os.RemoveAll(filepath.Join(home, "data")))
}

// HasStandby reports whether a standby follows the server.
func (p *Server) HasStandby() bool { return p.standby != nil }
