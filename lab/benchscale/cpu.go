package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuTimes is the processor time that each party has used so far.
type cpuTimes struct{ controller, postgres, own time.Duration }

// cpuUse is processor time in milliseconds for each of something.
type cpuUse struct {
	Controller float64 `json:"controller"`
	Postgres   float64 `json:"postgres"`
	Own        float64 `json:"client"`
}

// micro is the same in microseconds.
func (c cpuUse) micro() cpuUse {
	return cpuUse{Controller: c.Controller * 1000, Postgres: c.Postgres * 1000, Own: c.Own * 1000}
}

func (g *rig) cpu() (t cpuTimes, err error) {
	if t.controller, err = cpuOf(g.pid); err != nil {
		return t, err
	}
	if t.own, err = cpuOf(os.Getpid()); err != nil {
		return t, err
	}
	t.postgres, err = cpuOfFamily(g.dbPid)
	return t, err
}

// used is the processor time of each of n things that fn does.
func (g *rig) used(n int, fn func() error) (cpuUse, error) {
	before, err := g.cpu()
	if err != nil {
		return cpuUse{}, err
	}
	if err := fn(); err != nil {
		return cpuUse{}, err
	}
	after, err := g.cpu()
	return after.since(before, float64(n)), err
}

// sum is that of all parties.
func (c cpuUse) sum() float64 { return c.Controller + c.Postgres + c.Own }

// since divides what was used since before by n.
func (t cpuTimes) since(before cpuTimes, n float64) cpuUse {
	each := func(a, b time.Duration) float64 { return float64((a - b).Milliseconds()) / max(n, 1) }
	return cpuUse{
		Controller: each(t.controller, before.controller), Postgres: each(t.postgres, before.postgres),
		Own: each(t.own, before.own),
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
	// A tick is 10 ms: Linux gives user space 100 a second everywhere.
	return n[0], time.Duration(n[1]+n[2]) * 10 * time.Millisecond, nil
}
