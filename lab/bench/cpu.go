package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// cpuTimes is the processor time that each party has used so far.
type cpuTimes struct{ controller, postgres, own time.Duration }

// usage is what has been used so far.
type usage struct {
	cpu cpuTimes
	// commits are the transactions of the controller's database that were committed.
	commits int64
}

func (g *rig) usage(ctx context.Context) (u usage, err error) {
	if u.cpu, err = g.cpuTimes(); err != nil {
		return u, err
	}
	err = g.withDatabase(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").Scan(
			&u.commits)
	})
	return u, err
}

// clockTick is the unit of the times in proc_pid_stat(5). Linux gives 100 a second to user space everywhere.
const clockTick = 10 * time.Millisecond

func (g *rig) cpuTimes() (t cpuTimes, err error) {
	if t.controller, err = cpuOf(g.controller.pid()); err != nil {
		return t, err
	}
	if t.own, err = cpuOf(os.Getpid()); err != nil {
		return t, err
	}
	t.postgres, err = cpuOfFamily(g.dbPid)
	return t, err
}

// since divides what was used since before by n.
func (t cpuTimes) since(before cpuTimes, n float64) cpuUse {
	each := func(a, b time.Duration) float64 { return float64((a - b).Milliseconds()) / max(n, 1) }
	return cpuUse{
		Controller: each(t.controller, before.controller), Postgres: each(t.postgres, before.postgres),
		Agents: each(t.own, before.own),
	}
}

// cpuOfFamily adds up a process and its living children. Those of Postgres live as long as their connections.
func cpuOfFamily(pid int) (time.Duration, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	total, err := cpuOf(pid)
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		parent, used, err := parseStat(string(b))
		if err != nil {
			return 0, err
		}
		if parent == pid {
			total += used
		}
	}
	return total, nil
}

func cpuOf(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	_, used, err := parseStat(string(b))
	return used, err
}

// parseStat reads the parent and the processor time out of proc_pid_stat(5): fields 4, 14 and 15, counted behind the
// name, which may hold anything.
func parseStat(stat string) (parent int, used time.Duration, err error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, 0, fmt.Errorf("unexpected process status %q", stat)
	}
	var n [3]int
	for i, at := range []int{1, 11, 12} {
		if n[i], err = strconv.Atoi(fields[at]); err != nil {
			return 0, 0, fmt.Errorf("unexpected process status %q: %w", stat, err)
		}
	}
	return n[0], time.Duration(n[1]+n[2]) * clockTick, nil
}
