package trial

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/lab/chaos/program"
)

// CellPrefix begins the name of every cell's directory.
const CellPrefix = "ingot-chaos-"

// Claim locks a cell's directory for as long as this process lives.
func Claim(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Sweep removes cells whose harness was killed: their PostgreSQL, their file systems and their files. Controllers and
// agents end with their harness. A cell in use is left alone.
func Sweep(parent string) error {
	dirs, err := filepath.Glob(filepath.Join(parent, CellPrefix+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "lock")); err != nil {
			continue // it is just being made, or it is none
		}
		lock, err := Claim(dir)
		if err != nil {
			continue
		}
		program.Say("removing %s, which a killed run has left", dir)
		errs = append(errs, removeCell(dir), lock.Close())
	}
	return errors.Join(errs...)
}

func removeCell(dir string) error {
	postmaster := filepath.Join(dir, "postgres", "data", "postmaster.pid")
	if b, err := os.ReadFile(postmaster); err == nil {
		first, _, _ := strings.Cut(string(b), "\n")
		pid, err := strconv.Atoi(first)
		// It is ours only as long as it works in this directory.
		if cwd, lerr := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil && lerr == nil &&
			strings.HasPrefix(cwd, dir+"/") {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("end a PostgreSQL that was left: %w", err)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			if err := unix.Unmount(fields[1], unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", fields[1], err)
			}
		}
	}
	return os.RemoveAll(dir)
}
