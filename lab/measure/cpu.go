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
	_, used, err := parseStat(string(b))
	return used, err
}

// FamilyCPU adds up a process, its living children, and those that have ended and were waited for.
func FamilyCPU(pid int) (time.Duration, error) {
	total, err := CPU(pid)
	if err != nil {
		return 0, err
	}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
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

// parseStat reads the parent and the processor time, with that of children that have ended, out of proc_pid_stat(5): fields 4 and 14
// to 17, counted behind the name, which may hold anything.
func parseStat(stat string) (parent int, used time.Duration, err error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 15 {
		return 0, 0, fmt.Errorf("unexpected process status %q", stat)
	}
	var n [5]int
	for i, at := range []int{1, 11, 12, 13, 14} {
		if n[i], err = strconv.Atoi(fields[at]); err != nil {
			return 0, 0, fmt.Errorf("unexpected process status %q: %w", stat, err)
		}
	}
	return n[0], time.Duration(n[1]+n[2]+n[3]+n[4]) * clockTick, nil
}
