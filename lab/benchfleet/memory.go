package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// The targets of this part.
const (
	sessionTarget = 80 // KiB
	agentTarget   = 25 // MiB
	binaryTarget  = 30 // MB, of 10^6 bytes
)

// sizes measures the agent's binary, and an agent that has nothing to do.
func (b *bench) sizes(ctx context.Context, r *report) (err error) {
	path := filepath.Join(b.o.bin, "ingot-agent")
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("find the binaries (make build makes them): %w", err)
	}
	r.atMost(binaryTarget, "agent binary, stripped", float64(info.Size())/1e6, "MB", "as it is shipped")
	if err := b.up(ctx, 1); err != nil {
		return err
	}
	p, err := b.StartAgent(ctx)
	if err != nil {
		return err
	}
	if err := p.Rest(ctx, agentRest); err != nil {
		return err
	}
	rss, err := p.RSS()
	if err != nil {
		return fmt.Errorf("read memory of the agent: %w", err)
	}
	r.atMost(agentTarget, "agent process, idle", float64(rss)/measure.MiB, "MiB", "resident, %s after its start",
		agentRest)
	return p.Stop()
}

// agentRest is how long an agent rests before its memory is read; settle the same of a controller without sessions.
const (
	agentRest = 20 * time.Second
	settle    = 3 * time.Second
)

// memory measures what sessions cost a controller that only beat: a fresh one without a session, and then with all.
func (b *bench) memory(ctx context.Context, r *report) error {
	if err := b.enrolAll(ctx, b.o.sessions); err != nil {
		return err
	}
	if err := b.down(); err != nil {
		return err
	}
	if err := b.up(ctx, 1); err != nil {
		return err
	}
	if err := benchrig.Pause(ctx, settle); err != nil {
		return err
	}
	c := b.Controllers[0]
	before, metricsBefore, err := memory(ctx, c)
	if err != nil {
		return err
	}
	used, err := b.cpuTime()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.gather(ctx, b.o.sessions); err != nil {
		return err
	}
	r.add("sessions opened", float64(b.o.sessions)/time.Since(began).Seconds(), "/s", "%d, with identities that exist",
		b.o.sessions)
	if err := b.timeOf(r, "one", used, float64(b.o.sessions)); err != nil {
		return err
	}
	if used, err = b.cpuTime(); err != nil {
		return err
	}
	if err := benchrig.Pause(ctx, b.o.idle); err != nil {
		return err
	}
	after, metrics, err := memory(ctx, c)
	if err != nil {
		return err
	}
	peak, err := measure.Peak(c.Pid())
	if err != nil {
		return err
	}
	n := float64(b.o.sessions)
	r.atMost(sessionTarget, "memory of an idle session", float64(after-before)/n/measure.KiB, "KiB",
		"resident, of %d with both streams; %.1f KiB of it heap and stacks in use", b.o.sessions,
		(metrics.InUse()-metricsBefore.InUse())/n/measure.KiB)
	r.memoryOf(metricsBefore, metrics, float64(after-before), n)
	if err := b.timeOf(r, "all at rest, each second", used, b.o.idle.Seconds()); err != nil {
		return err
	}
	r.add("controller with these sessions", float64(after)/measure.MiB, "MiB", "%.1f without, %.1f at most",
		float64(before)/measure.MiB, float64(peak)/measure.MiB)
	return b.agentsMemory(r)
}

// agentsMemory is what the simulator costs.
func (b *bench) agentsMemory(r *report) error {
	var all int64
	for _, p := range b.crew.parts {
		rss, err := measure.RSS(p.Pid())
		if err != nil {
			return err
		}
		all += rss
	}
	r.add("memory of a simulated agent", float64(all)/float64(b.crew.size)/measure.KiB, "KiB", "of %d in %d processes",
		b.crew.size, len(b.crew.parts))
	return nil
}

// enrolAll gives the first n machines their identities, where they have none.
func (b *bench) enrolAll(ctx context.Context, n int) error {
	if b.made >= n {
		return nil
	}
	if err := b.up(ctx, 1); err != nil {
		return err
	}
	return b.gather(ctx, n)
}
