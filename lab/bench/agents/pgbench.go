package agents

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/ingot-metal/ingot/internal/localpg"
	"github.com/ingot-metal/ingot/lab/bench/rig"
)

// pgbench measures the database with its own tool, and returns the transactions a second with each number of clients.
// It uses a database of its own that is dropped afterwards.
func (b *bench) pgbench(ctx context.Context) (tps map[int]float64, err error) {
	tool, _, err := localpg.Program("pgbench", 14) // on Debian it comes with the server
	if err != nil {
		return nil, err
	}
	if err := b.sql(ctx, "CREATE DATABASE pgbench"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.sql(ctx, "DROP DATABASE pgbench"), b.sql(ctx, "CHECKPOINT")) }()
	u, err := url.Parse(b.URL)
	if err != nil {
		return nil, err
	}
	run := func(args ...string) (string, error) {
		args = append(args, "-h", u.Query().Get("host"), "-p", u.Query().Get("port"), "-U", u.User.Username(), "pgbench")
		out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%s %q: %w: %s", tool, args, err, out)
		}
		return string(out), nil
	}
	if _, err := run("-i", "-q", "-s", strconv.Itoa(b.o.scale)); err != nil {
		return nil, err
	}
	tps = map[int]float64{}
	for _, clients := range b.o.clients {
		rig.Say("pgbench: %d clients for %s, scale %d", clients, b.o.duration, b.o.scale)
		out, err := run("-M", "prepared", "-c", strconv.Itoa(clients), "-j", "2",
			"-T", strconv.Itoa(int(b.o.duration.Seconds())))
		if err != nil {
			return nil, err
		}
		if tps[clients], err = parseTPS(out); err != nil {
			return nil, err
		}
	}
	return tps, nil
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
func (b *bench) sql(ctx context.Context, statement string) error {
	_, err := b.Admin.Exec(ctx, statement)
	return err
}
