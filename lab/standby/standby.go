// Package standby runs a Postgres with a streaming standby, for tests that kill the one and promote the other.
package standby

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/localpg"
	"github.com/ingot-metal/ingot/lab/relay"
)

// Config has the directory and the settings of a pair.
type Config struct {
	// Dir holds both clusters.
	Dir string
	// Asynchronous lets the primary commit without the standby.
	Asynchronous bool
	// Ephemeral and Settings are those of both clusters.
	Ephemeral bool
	Settings  map[string]string
}

// Pair is a primary and its standby.
type Pair struct {
	Primary, Standby *localpg.Cluster
	// Stream leads from the standby to the primary.
	Stream *relay.Relay
}

// name is the standby's, as the primary knows it.
const name = "standby1"

// Open starts a primary and a standby of it, and returns when the standby streams.
func Open(ctx context.Context, c Config) (p *Pair, err error) {
	p = &Pair{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close(ctx))
		}
	}()
	settings := Settings()
	maps.Copy(settings, c.Settings)
	cluster := localpg.Config{Ephemeral: c.Ephemeral, Settings: settings, Logger: slog.New(slog.DiscardHandler)}
	cluster.Dir = filepath.Join(c.Dir, "primary")
	if p.Primary, err = localpg.Open(ctx, cluster); err != nil {
		return p, err
	}
	socket, err := socketOf(p.Primary)
	if err != nil {
		return p, err
	}
	if p.Stream, err = relay.Open("unix", socket); err != nil {
		return p, err
	}
	host, port, err := net.SplitHostPort(p.Stream.Address())
	if err != nil {
		return p, fmt.Errorf("split the relay's address: %w", err)
	}
	cluster.Dir = filepath.Join(c.Dir, "standby")
	p.Standby, err = Attach(ctx, p.Primary, cluster, "host="+host+" port="+port, !c.Asynchronous)
	return p, err
}

// Settings are what both servers of a pair need.
func Settings() map[string]string {
	return map[string]string{
		"wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on", "wal_retrieve_retry_interval": "200ms",
		"wal_keep_size": "64MB",
	}
}

// Attach makes a standby of a running server, and returns when it streams. way is the host and the port that lead to
// the server.
func Attach(
	ctx context.Context, primary *localpg.Cluster, c localpg.Config, way string, synchronous bool,
) (*localpg.Cluster, error) {
	s, err := primary.OpenStandby(ctx, c, fmt.Sprintf("%s user=%s application_name=%s", way, localpg.User, name))
	if err != nil {
		return nil, err
	}
	want := "async"
	if synchronous {
		// As an operator does, once the standby is there. ALTER SYSTEM outlives a restart.
		want, err = "sync", alter(ctx, primary, "SET synchronous_standby_names = '"+name+"'")
	}
	if err = errors.Join(err, streams(ctx, primary, want)); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// Detach has a server commit without a standby.
func Detach(ctx context.Context, primary *localpg.Cluster) error {
	return alter(ctx, primary, "RESET synchronous_standby_names")
}

func alter(ctx context.Context, c *localpg.Cluster, what string) error {
	for _, sql := range []string{"ALTER SYSTEM " + what, "SELECT pg_reload_conf()"} {
		if _, err := c.Query(ctx, sql); err != nil {
			return fmt.Errorf("configure the server: %w", err)
		}
	}
	return nil
}

// streams waits until the primary counts the standby as what it should be.
func streams(ctx context.Context, primary *localpg.Cluster, want string) error {
	for {
		got, err := primary.Query(ctx, "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'")
		if err == nil && got == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the standby does not stream: %q, %w", got, errors.Join(err, ctx.Err()))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// URL names both servers, as a controller's configuration does.
func (p *Pair) URL() string {
	u := url.URL{Scheme: "postgres", User: url.User(localpg.User), Path: "/" + localpg.Database}
	u.RawQuery = url.Values{
		"host": {p.Hosts()}, "port": {"5432,5432"},
		"target_session_attrs": {"read-write"}, "connect_timeout": {"2"},
	}.Encode()
	return u.String()
}

// Hosts are both servers, as a URL names them.
func (p *Pair) Hosts() string { return directoryOf(p.Primary) + "," + directoryOf(p.Standby) }

// directoryOf is where a cluster's socket is.
func directoryOf(c *localpg.Cluster) string {
	u, err := url.Parse(c.URL(localpg.Database))
	if err != nil {
		panic(err) // the cluster has made it
	}
	return u.Query().Get("host")
}

func socketOf(c *localpg.Cluster) (string, error) {
	dir := directoryOf(c)
	if dir == "" {
		return "", errors.New("the cluster has no socket")
	}
	return filepath.Join(dir, ".s.PGSQL.5432"), nil
}

// KillPrimary ends the primary with kill -9: its processes see that their parent is gone, and go.
func (p *Pair) KillPrimary() error {
	if err := syscall.Kill(p.Primary.Pid(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the primary: %w", err)
	}
	return nil
}

// Promote makes the standby the primary. The old one is gone for good.
func (p *Pair) Promote(ctx context.Context) error { return p.Standby.Promote(ctx) }

// Close stops both.
func (p *Pair) Close(ctx context.Context) error {
	var errs []error
	for _, c := range []*localpg.Cluster{p.Standby, p.Primary} {
		if c != nil {
			errs = append(errs, c.Stop(ctx))
		}
	}
	if p.Stream != nil {
		p.Stream.Close()
	}
	return errors.Join(errs...)
}
