package program

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// SteppedClock are the clocks of one program: the file that has their offset. Nil stands for clocks that cannot be set.
type SteppedClock struct {
	path string

	mu sync.Mutex
	// asleep is for how long the program's machine has been suspended, in all: CLOCK_BOOTTIME never goes back.
	asleep time.Duration
}

// NewSteppedClock makes the file with the offset of the clocks: 0 so far.
func NewSteppedClock(path string) (*SteppedClock, error) {
	s := &SteppedClock{path: path}
	return s, s.write(0, 0)
}

// Set puts the wall clock off by d from now on, in a running program too.
func (s *SteppedClock) Set(d time.Duration) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(d, s.asleep)
}

// Suspend lets the machine's boot-time clock go on by d at once, and leaves its wall clock off by step.
func (s *SteppedClock) Suspend(d, step time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep += d
	return s.write(step, s.asleep)
}

func (s *SteppedClock) write(step, asleep time.Duration) error {
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("set a clock: %w", err)
	}
	defer f.Close()
	// One write of two aligned words: no reader sees half of one.
	words := binary.NativeEndian.AppendUint64(nil, uint64(step.Nanoseconds()))
	words = binary.NativeEndian.AppendUint64(words, uint64(asleep.Nanoseconds()))
	if _, err := f.WriteAt(words, 0); err != nil {
		return fmt.Errorf("set a clock: %w", err)
	}
	return nil
}

// Drift lets the wall clock run too fast or too slow, until it is off by d.
func (s *SteppedClock) Drift(ctx context.Context, d, length time.Duration) error {
	const steps = 20
	for i := range steps {
		if err := s.Set(d * time.Duration(i+1) / steps); err != nil {
			return err
		}
		Rest(ctx, length/steps)
	}
	return nil
}

// Environment is what a program is started with to have these clocks.
func (s *SteppedClock) Environment() []string {
	if s == nil {
		return nil
	}
	return []string{clockVariable + "=" + s.path}
}

// MappedBy reports whether the process reads this clock (proc_pid_maps(5)).
func (s *SteppedClock) MappedBy(pid int) bool {
	if s == nil {
		return false
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	return err == nil && strings.Contains(string(maps), s.path)
}
