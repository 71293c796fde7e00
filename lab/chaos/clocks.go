package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"time"
)

// steppedClock is the wall clock of one program: the file that says by how much it is off. Nil stands for a clock that
// nobody can set.
type steppedClock struct{ path string }

func (c *cell) newClock(name string) (*steppedClock, error) {
	if !c.steppable {
		return nil, nil
	}
	s := &steppedClock{c.path(name + ".clock")}
	return s, s.set(0)
}

// set puts the clock off by d from now on, in a running program too.
func (s *steppedClock) set(d time.Duration) error {
	if s == nil {
		return nil
	}
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("set a clock: %w", err)
	}
	defer f.Close()
	// One write of an aligned word: nobody sees half of it.
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(d.Nanoseconds())), 0); err != nil {
		return fmt.Errorf("set a clock: %w", err)
	}
	return nil
}

func (s *steppedClock) environment() []string {
	if s == nil {
		return nil
	}
	return []string{clockVariable + "=" + s.path}
}

// mappedBy says that the process reads this clock (proc_pid_maps(5)).
func (s *steppedClock) mappedBy(pid int) bool {
	if s == nil {
		return false
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	return err == nil && strings.Contains(string(maps), s.path)
}
