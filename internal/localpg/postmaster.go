package localpg

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// postmaster is a running server, as data/postmaster.pid describes it.
type postmaster struct {
	pid       int
	socketDir string
	// stopping is true once a shutdown has begun.
	stopping bool
}

// The lines of postmaster.pid (PostgreSQL's src/include/utils/pidfile.h), counted from 0.
const (
	pidLine    = 0
	socketLine = 4
	statusLine = 7
)

// parsePidFile reads postmaster.pid, which is shorter while the server is starting.
func parsePidFile(b []byte) (postmaster, error) {
	lines := strings.Split(string(b), "\n")
	line := func(i int) string {
		if i < len(lines) {
			return strings.TrimSpace(lines[i])
		}
		return ""
	}
	pid, err := strconv.Atoi(line(pidLine))
	if err != nil || pid <= 1 {
		return postmaster{}, fmt.Errorf("postmaster.pid starts with %q", line(pidLine))
	}
	return postmaster{pid: pid, socketDir: line(socketLine), stopping: line(statusLine) == "stopping"}, nil
}

// findPostmaster returns the server that runs on data, if there is one, and clears away the file of one that does not.
func findPostmaster(data string) (postmaster, bool, error) {
	path := filepath.Join(data, "postmaster.pid")
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return postmaster{}, false, nil
	}
	if err != nil {
		return postmaster{}, false, fmt.Errorf("read postmaster.pid: %w", err)
	}
	pm, err := parsePidFile(b)
	if err == nil && serves(pm.pid, data) {
		return pm, true, nil
	}
	// PostgreSQL would refuse to start if the pid now belonged to another process of the same user.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return postmaster{}, false, fmt.Errorf("remove stale postmaster.pid: %w", err)
	}
	return postmaster{}, false, nil
}

// serves reports whether pid is a live server whose working directory, as always with PostgreSQL, is data.
func serves(pid int, data string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	cwd, err := os.Readlink(filepath.Join(proc, "cwd"))
	if err != nil || cwd != data {
		return false
	}
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	return err == nil && !isZombie(stat)
}

// isZombie reads /proc/<pid>/stat (proc(5)): the state is the first field after the name in parentheses.
func isZombie(stat []byte) bool {
	i := bytes.LastIndexByte(stat, ')')
	return i < 0 || i+2 >= len(stat) || stat[i+2] == 'Z' || stat[i+2] == 'X'
}

func signal(pid int, sig syscall.Signal) error {
	err := syscall.Kill(pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
