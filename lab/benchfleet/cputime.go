package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/lab/measure"
)

// cpuTime is the processor time that each party has used so far: where the time goes, on a machine whose processors all
// of them share.
type cpuTime struct{ controllers, postgres, agents, own time.Duration }

func (b *bench) cpuTime() (s cpuTime, err error) {
	for _, c := range b.controllers {
		used, err := measure.CPU(c.process.Pid())
		if err != nil {
			return s, err
		}
		s.controllers += used
	}
	if b.crew != nil {
		for _, p := range b.crew.parts {
			used, err := measure.CPU(p.Pid())
			if err != nil {
				return s, err
			}
			s.agents += used
		}
	}
	pid, err := b.postmaster()
	if err != nil {
		return s, err
	}
	if s.postgres, err = measure.FamilyCPU(pid); err != nil {
		return s, err
	}
	s.own, err = measure.CPU(os.Getpid())
	return s, err
}

// postmaster reads the process id of the database's first process (the first line of postmaster.pid).
func (b *bench) postmaster() (int, error) {
	raw, err := os.ReadFile(b.path("postgres", "data", "postmaster.pid"))
	if err != nil {
		return 0, fmt.Errorf("find the database's process: %w", err)
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	return strconv.Atoi(strings.TrimSpace(first))
}

// timeOf adds what was spent since before, for each of n.
func (b *bench) timeOf(r *report, what string, before cpuTime, n float64) error {
	now, err := b.cpuTime()
	if err != nil {
		return err
	}
	each := func(now, before time.Duration) float64 {
		return float64((now - before).Microseconds()) / 1000 / max(n, 1)
	}
	c, p := each(now.controllers, before.controllers), each(now.postgres, before.postgres)
	a, o := each(now.agents, before.agents), each(now.own, before.own)
	r.add("  processor time of "+what, c+p+a+o, "ms", "controller %.2f, Postgres %.2f, agents %.2f, clients %.2f", c, p, a,
		o)
	return nil
}

// memoryOf adds where the memory is that n sessions have made a controller grow by.
func (r *report) memoryOf(before, after measure.Metrics, rss, n float64) {
	grown := func(names ...string) (sum float64) {
		for _, name := range names {
			name = "go_memstats_" + name + "_bytes"
			sum += after[name] - before[name]
		}
		return sum / n / measure.KiB
	}
	objects, stacks := grown("heap_alloc"), grown("stack_inuse")
	slack := grown("heap_inuse") - objects
	idle := grown("heap_idle") - grown("heap_released")
	r.add("  objects", objects, "KiB", "alive, or not collected yet")
	r.add("  stacks", stacks, "KiB", "%.1f goroutines", (after["go_goroutines"]-before["go_goroutines"])/n)
	r.add("  room", slack+idle, "KiB", "%.1f in parts of pages that are in use, %.1f kept for later", slack, idle)
	r.add("  everything else", rss/n/measure.KiB-objects-stacks-slack-idle, "KiB",
		"what the runtime needs for itself, and pages of the program")
}
