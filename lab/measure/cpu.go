package measure

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// clockTick is the unit of the times in proc_pid_stat(5). Linux shows user space 100 a second everywhere.
const clockTick = 10 * time.Millisecond

// CPU is the processor time that a process has used.
func CPU(pid int) (time.Duration, error) {
	s, err := stat(pid)
	return time.Duration(s.UTime+s.STime) * clockTick, err
}

// FamilyCPU adds up a process, its living children, and those that have ended and were waited for.
func FamilyCPU(pid int) (time.Duration, error) {
	first, err := stat(pid)
	if err != nil {
		return 0, err
	}
	family, err := children(pid)
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, s := range append(family, first) {
		total += (time.Duration(s.UTime+s.STime) + time.Duration(s.CUTime+s.CSTime)) * clockTick
	}
	return total, nil
}

// Children are the processes that a process has started and that live. What ends meanwhile is none of them.
func Children(pid int) ([]int, error) {
	list, err := children(pid)
	out := make([]int, 0, len(list))
	for _, s := range list {
		out = append(out, s.PID)
	}
	return out, err
}

// Stopped reports whether a process is stopped by a signal.
func Stopped(pid int) bool {
	s, err := stat(pid)
	return err == nil && s.State == "T"
}

func children(pid int) (list []procfs.ProcStat, err error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, p := range all {
		if s, err := p.Stat(); err == nil && s.PPID == pid {
			list = append(list, s)
		}
	}
	return list, nil
}

func stat(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("find process: %w", err)
	}
	s, err := p.Stat()
	if err != nil {
		return s, fmt.Errorf("read processor time: %w", err)
	}
	return s, nil
}
