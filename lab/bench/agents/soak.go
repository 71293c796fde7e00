package agents

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// sample describes the controller at one moment of the soak. Sizes are in MiB.
type sample struct {
	memory, goroutines, files float64
	// tables are all with their indexes, sessions the one of the sessions, which every heartbeat writes to.
	tables, sessions      float64
	connected, operations int
}

const (
	// flat is by how much the last third of a soak may be above the second one.
	flat = 1.05
	// soakRate is in operations a second: something goes on, and the tables grow by it slowly.
	soakRate = 5
)

// soak runs a fleet for long, with few operations, and measures whether anything grows.
func (b *bench) soak(ctx context.Context, r *report.Run) error {
	d, err := b.atWork(ctx)
	if err != nil {
		return err
	}
	defer d.stop()
	before, err := b.fleet.status()
	if err != nil {
		return err
	}
	var samples []sample
	used, err := b.Used(ctx, func() error {
		operations := 0
		for began := time.Now(); time.Since(began) < b.o.soak; {
			l, err := d.pace(ctx, soakRate, b.o.callers, min(b.o.every, b.o.soak))
			if err != nil {
				return err
			}
			operations += len(l.total)
			s, err := b.sample(ctx, operations)
			if err != nil {
				return err
			}
			samples = append(samples, s)
			rig.Say("soak, %s: %+v", time.Since(began).Round(time.Second), s)
		}
		return nil
	})
	if err != nil {
		return err
	}
	after, err := b.fleet.status()
	if err != nil {
		return err
	}
	r.Add("sessions lost", float64(after.Opened-before.Opened-(after.Reboots-before.Reboots)), "", report.AtMost(0),
		"of %d in %s", b.o.sessions, b.o.soak)
	judge(r, samples)
	addUse(r, "everything, each second", used, used.Seconds)
	return nil
}

func (b *bench) sample(ctx context.Context, operations int) (s sample, err error) {
	c := b.Controllers[0]
	m, err := c.Memory(ctx)
	if err != nil {
		return s, err
	}
	files, err := measure.OpenFiles(c.Pid())
	if err != nil {
		return s, err
	}
	st, err := b.fleet.status()
	if err != nil {
		return s, err
	}
	s = sample{memory: m.RSS / measure.MiB, goroutines: m.Metrics["go_goroutines"], files: float64(files),
		connected: st.Connected, operations: operations}
	err = b.Admin.QueryRow(
		ctx,
		`SELECT sum(pg_total_relation_size(c.oid))::float8 / 1048576, pg_total_relation_size('agent_sessions')::float8 / 1048576
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname = current_schema()`,
	).Scan(&s.tables, &s.sessions)
	if err != nil {
		return s, fmt.Errorf("read sizes of tables: %w", err)
	}
	return s, nil
}

// judge compares the last third with the one before; the first is for warming up.
func judge(r *report.Run, samples []sample) {
	third := len(samples) / 3
	if third == 0 {
		return
	}
	for _, m := range []struct {
		what string
		of   func(sample) float64
	}{
		{"memory", func(s sample) float64 { return s.memory }},
		{"goroutines", func(s sample) float64 { return s.goroutines }},
		{"open files", func(s sample) float64 { return s.files }},
		{"table of sessions", func(s sample) float64 { return s.sessions }},
	} {
		middle, last := mean(samples[third:2*third], m.of), mean(samples[len(samples)-third:], m.of)
		r.Add(m.what+", last third of second", last/middle, "", report.AtMost(flat), "%.1f and %.1f", middle, last)
	}
	first, last := samples[third], samples[len(samples)-1]
	if n := last.operations - first.operations; n > 0 {
		r.Add("tables grow by", (last.tables-first.tables)*measure.MiB/measure.KiB/float64(n), "KiB", nil,
			"for each operation, which stays in the history")
	}
}

func mean(list []sample, of func(sample) float64) float64 {
	var sum float64
	for _, s := range list {
		sum += of(s)
	}
	return sum / float64(len(list))
}
