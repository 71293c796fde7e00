package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of the times in proc_pid_stat(5). Linux gives 100 a second to user space everywhere.
const clockTick = 10 * time.Millisecond

// CPU is the processor time that a process has used.
func CPU(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	t, err := parseStat(string(b))
	return t.own, err
}

// FamilyCPU adds up a process, its living children, and those that have ended and were waited for.
func FamilyCPU(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	t, err := parseStat(string(b))
	if err != nil {
		return 0, err
	}
	total := t.own + t.ended
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		t, err := parseStat(string(b))
		if err != nil {
			return 0, err
		}
		if t.parent == pid {
			total += t.own + t.ended
		}
	}
	return total, nil
}

// stat is what a process has used: itself, and its children that have ended and were waited for.
type stat struct {
	parent     int
	own, ended time.Duration
}

// parseStat reads fields 4 and 14 to 17 of proc_pid_stat(5), counted behind the name, which may hold anything.
func parseStat(text string) (stat, error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 15 {
		return stat{}, fmt.Errorf("unexpected process status %q", text)
	}
	var n [5]int
	for i, at := range []int{1, 11, 12, 13, 14} {
		var err error
		if n[i], err = strconv.Atoi(fields[at]); err != nil {
			return stat{}, fmt.Errorf("unexpected process status %q: %w", text, err)
		}
	}
	return stat{n[0], time.Duration(n[1]+n[2]) * clockTick, time.Duration(n[3]+n[4]) * clockTick}, nil
}
