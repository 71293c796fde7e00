package main

import (
	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// cpuTime is the processor time that each party has used so far: where the time goes.
func (b *bench) cpuTime() (benchrig.CPU, error) {
	var pids []int
	if b.crew != nil {
		for _, p := range b.crew.parts {
			pids = append(pids, p.Pid())
		}
	}
	return b.CPU(pids...)
}

// timeOf adds what was spent since before, for each of n.
func (b *bench) timeOf(r *report, what string, before benchrig.CPU, n float64) error {
	now, err := b.cpuTime()
	if err != nil {
		return err
	}
	u := now.Since(before, n)
	r.add("  processor time of "+what, u.Sum(), "ms", "controller %.2f, Postgres %.2f, agents %.2f, clients %.2f",
		u.Controller, u.Postgres, u.Agents, u.Own)
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
