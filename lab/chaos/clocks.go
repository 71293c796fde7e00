package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// steppedClock are the clocks of one program: the file that says by how much they are off. Nil stands for clocks that
// nobody can set.
type steppedClock struct {
	path string

	mu sync.Mutex
	// asleep is for how long the program's machine has been suspended, in all: CLOCK_BOOTTIME never goes back.
	asleep time.Duration
}

// newSteppedClock makes the file that says how far the clocks are off: not at all so far.
func newSteppedClock(path string) (*steppedClock, error) {
	s := &steppedClock{path: path}
	return s, s.write(0, 0)
}

// set puts the wall clock off by d from now on, in a running program too.
func (s *steppedClock) set(d time.Duration) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(d, s.asleep)
}

// suspend lets the machine's boot-time clock go on by d at once, and leaves its wall clock off by step.
func (s *steppedClock) suspend(d, step time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep += d
	return s.write(step, s.asleep)
}

func (s *steppedClock) write(step, asleep time.Duration) error {
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("set a clock: %w", err)
	}
	defer f.Close()
	// One write of two aligned words: nobody sees half of one.
	words := binary.NativeEndian.AppendUint64(nil, uint64(step.Nanoseconds()))
	words = binary.NativeEndian.AppendUint64(words, uint64(asleep.Nanoseconds()))
	if _, err := f.WriteAt(words, 0); err != nil {
		return fmt.Errorf("set a clock: %w", err)
	}
	return nil
}

// drift lets the wall clock run too fast or too slow, until it is off by d.
func (s *steppedClock) drift(ctx context.Context, d, length time.Duration) error {
	const steps = 20
	for i := range steps {
		if err := s.set(d * time.Duration(i+1) / steps); err != nil {
			return err
		}
		rest(ctx, length/steps)
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
