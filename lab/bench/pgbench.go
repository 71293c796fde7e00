package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/ingot-metal/ingot/lab/benchrig"
)

// pgbench measures the database with its own tool and each number of clients, in a database of its own that is dropped
// afterwards.
func (g *rig) pgbench(ctx context.Context) (r pgbenchResult, err error) {
	tool, err := findPgbench()
	if err != nil {
		return r, err
	}
	if err := g.sql(ctx, "CREATE DATABASE pgbench"); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.sql(ctx, "DROP DATABASE pgbench"), g.sql(ctx, "CHECKPOINT")) }()
	u, err := url.Parse(g.URL)
	if err != nil {
		return r, err
	}
	target := []string{"-h", u.Query().Get("host"), "-p", u.Query().Get("port"), "-U", u.User.Username(), "pgbench"}
	if _, err := output(ctx, tool, append([]string{"-i", "-q", "-s", strconv.Itoa(g.o.scale)}, target...)); err != nil {
		return r, err
	}
	r.Scale, r.TPS = g.o.scale, map[int]float64{}
	for _, clients := range g.o.clients {
		benchrig.Say("pgbench: %d clients for %s", clients, g.o.duration)
		out, err := output(ctx, tool, append([]string{
			"-M", "prepared", "-c", strconv.Itoa(clients), "-j", "2", "-T", strconv.Itoa(int(g.o.duration.Seconds())),
		}, target...))
		if err != nil {
			return r, err
		}
		if r.TPS[clients], err = parseTPS(out); err != nil {
			return r, err
		}
	}
	return r, nil
}

func output(ctx context.Context, tool string, args []string) (string, error) {
	out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %q: %w: %s", tool, args, err, out)
	}
	return string(out), nil
}

// findPgbench looks where Debian puts it, then in PATH. On Debian it comes with the server.
func findPgbench() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if err == nil && len(found) > 0 {
		return found[len(found)-1], nil
	}
	path, err := exec.LookPath("pgbench")
	if err != nil {
		return "", fmt.Errorf("find pgbench (Debian: apt-get install postgresql): %w", err)
	}
	return path, nil
}

var tpsLine = regexp.MustCompile(
	`(?m)^tps = ([0-9.]+) \((?:without initial connection time|excluding connections establishing)\)`)

func parseTPS(out string) (float64, error) {
	m := tpsLine.FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("no tps in the output of pgbench: %s", out)
	}
	return strconv.ParseFloat(m[1], 64)
}

// sql runs a statement outside any transaction.
func (g *rig) sql(ctx context.Context, statement string) error {
	_, err := g.Admin.Exec(ctx, statement)
	return err
}
