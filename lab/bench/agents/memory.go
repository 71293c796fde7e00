package agents

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/measure"
)

const (
	sessionLimit = 80 // KiB
	// settle is how long a fresh controller rests before its memory is read.
	settle = 3 * time.Second
)

// memory measures what sessions that only beat cost the controller: a fresh one without a session, and then with all.
// The identities are made before, on another one.
func (b *bench) memory(ctx context.Context, r *report.Run) error {
	if b.made < b.o.sessions {
		if err := b.openSessions(ctx); err != nil {
			return err
		}
	}
	if err := b.fresh(ctx, 1); err != nil {
		return err
	}
	if err := rig.Pause(ctx, settle); err != nil {
		return err
	}
	c, n := b.Controllers[0], float64(b.o.sessions)
	before, err := c.Memory(ctx)
	if err != nil {
		return err
	}
	opened, err := b.Used(ctx, func() error { return b.gather(ctx, b.o.sessions) })
	if err != nil {
		return err
	}
	r.Add("sessions opened", n/opened.Seconds, "/s", nil, "%.0f, with identities that exist", n)
	addUse(r, "one that opens", opened, n)
	rest, err := b.Used(ctx, func() error { return rig.Pause(ctx, b.o.idle) })
	if err != nil {
		return err
	}
	if err := b.fleet.settled(ctx, b.o.sessions); err != nil {
		return err
	}
	after, err := c.Memory(ctx)
	if err != nil {
		return err
	}
	peak, err := measure.Peak(c.Pid())
	if err != nil {
		return err
	}
	b.addSession(r, before, after)
	addUse(r, "all at rest, each second", rest, rest.Seconds)
	r.Add("controller with these sessions", after.RSS/measure.MiB, "MiB", nil, "%.1f MiB without, %.1f at most",
		before.RSS/measure.MiB, float64(peak)/measure.MiB)
	return b.agentsMemory(r)
}

// addSession adds where the memory is that the sessions have made a controller grow by.
func (b *bench) addSession(r *report.Run, before, after rig.Memory) {
	grown := func(sign float64, names ...string) (sum float64) {
		for _, name := range names {
			sum += sign * (after.Metrics["go_memstats_"+name+"_bytes"] - before.Metrics["go_memstats_"+name+"_bytes"])
			sign = -1
		}
		return sum / float64(b.o.sessions) / measure.KiB
	}
	all := (after.RSS - before.RSS) / float64(b.o.sessions) / measure.KiB
	objects, stacks := grown(1, "heap_alloc"), grown(1, "stack_inuse")
	slack, idle := grown(1, "heap_inuse", "heap_alloc"), grown(1, "heap_idle", "heap_released")
	r.Add("memory of an idle session", all, "KiB", report.AtMost(sessionLimit),
		"resident, of %d with both streams; %.1f KiB of it heap and stacks in use", b.o.sessions, objects+slack+stacks)
	r.Add("session: objects", objects, "KiB", nil, "alive, or not collected yet")
	r.Add("session: stacks", stacks, "KiB", nil, "%.1f goroutines",
		(after.Metrics["go_goroutines"]-before.Metrics["go_goroutines"])/float64(b.o.sessions))
	r.Add(
		"session: room",
		slack+idle,
		"KiB",
		nil,
		"%.1f in parts of pages that are in use, %.1f kept for later",
		slack,
		idle,
	)
	r.Add("session: everything else", all-objects-stacks-slack-idle, "KiB", nil,
		"what the runtime needs for itself, and pages of the program")
}

// agentsMemory adds what the simulator costs.
func (b *bench) agentsMemory(r *report.Run) error {
	var all int64
	for _, pid := range b.Agents {
		rss, err := measure.RSS(pid)
		if err != nil {
			return err
		}
		all += rss
	}
	r.Add(
		"memory of a simulated agent",
		float64(all)/float64(b.fleet.size)/measure.KiB,
		"KiB",
		nil,
		"of %d in %d processes",
		b.fleet.size,
		len(b.Agents),
	)
	return nil
}
