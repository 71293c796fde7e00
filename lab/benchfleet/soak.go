package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// sample is how the controller is at one moment of the soak.
type sample struct {
	Seconds    float64 `json:"seconds"`
	RSSMiB     float64 `json:"rss_mib"`
	InUseMiB   float64 `json:"heap_and_stacks_mib"`
	Goroutines float64 `json:"goroutines"`
	OpenFiles  int     `json:"open_files"`
	// DatabaseMiB are all tables with their indexes, SessionsMiB that of the sessions, which every heartbeat writes to.
	DatabaseMiB float64 `json:"database_mib"`
	SessionsMiB float64 `json:"sessions_table_mib"`
	Connected   int     `json:"connected"`
	Operations  int     `json:"operations"`
}

// At is the moment.
func (s sample) At() time.Duration { return time.Duration(s.Seconds * float64(time.Second)) }

// String is the line of the table.
func (s sample) String() string {
	return fmt.Sprintf(
		"%.0f MiB in use, %.0f goroutines, %d files, tables %.0f MiB, of sessions %.1f, %d connected, %d operations",
		s.InUseMiB, s.Goroutines, s.OpenFiles, s.DatabaseMiB, s.SessionsMiB, s.Connected, s.Operations)
}

const (
	// flat is by how much the last third of a soak may be above the second one.
	flat = 1.05
	// soakRate is in operations a second: something goes on, and the tables grow by it slowly.
	soakRate = 5
)

// soak lets a fleet run for long, with few operations, and looks whether anything grows.
func (b *bench) soak(ctx context.Context, r *report) error {
	worked, err := b.atWork(ctx)
	if err != nil {
		return err
	}
	before, err := b.crew.status()
	if err != nil {
		return err
	}
	used, err := b.cpuTime()
	if err != nil {
		return err
	}
	l := newLoad(b, worked)
	began := time.Now()
	for time.Since(began) < b.o.soak {
		if _, err := l.drive(ctx, soakRate, min(b.o.every, b.o.soak)); err != nil {
			return err
		}
		s, err := b.look(ctx, began)
		if err != nil {
			return err
		}
		if len(r.Soak) > 0 {
			s.Operations = r.Soak[len(r.Soak)-1].Operations
		}
		s.Operations += l.ended
		r.Soak = append(r.Soak, s)
		benchrig.Say("%s: %.1f MiB, %s", s.At().Round(time.Second), s.RSSMiB, s)
	}
	after, err := b.crew.status()
	if err != nil {
		return err
	}
	r.atMost(0, "soak: sessions lost", float64(after.Opened-before.Opened-(after.Reboots-before.Reboots)), "",
		"of %d in %s", b.o.sessions, b.o.soak)
	r.judgeSoak()
	return b.timeOf(r, "everything, each second", used, time.Since(began).Seconds())
}

func (b *bench) look(ctx context.Context, began time.Time) (s sample, err error) {
	c := b.Controllers[0]
	m, err := measure.ReadMetrics(ctx, c.HTTP)
	if err != nil {
		return s, err
	}
	rss, err := c.RSS()
	if err != nil {
		return s, err
	}
	files, err := measure.OpenFiles(c.Pid())
	if err != nil {
		return s, err
	}
	st, err := b.crew.status()
	if err != nil {
		return s, err
	}
	s = sample{
		Seconds: time.Since(began).Seconds(), RSSMiB: float64(rss) / measure.MiB, InUseMiB: m.InUse() / measure.MiB,
		Goroutines: m["go_goroutines"], OpenFiles: files, Connected: st.Connected,
	}
	err = b.Admin.QueryRow(
		ctx,
		`SELECT sum(pg_total_relation_size(c.oid))::float8 / 1048576, pg_total_relation_size('agent_sessions')::float8 / 1048576
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname = current_schema()`,
	).Scan(&s.DatabaseMiB, &s.SessionsMiB)
	if err != nil {
		return s, fmt.Errorf("read sizes of tables: %w", err)
	}
	return s, nil
}

// judgeSoak compares the last third with the one before; the first is for warming up.
func (r *report) judgeSoak() {
	third := len(r.Soak) / 3
	if third == 0 {
		return
	}
	for _, m := range []struct {
		what string
		of   func(sample) float64
	}{
		{"memory", func(s sample) float64 { return s.RSSMiB }},
		{"goroutines", func(s sample) float64 { return s.Goroutines }},
		{"open files", func(s sample) float64 { return float64(s.OpenFiles) }},
		{"table of sessions", func(s sample) float64 { return s.SessionsMiB }},
	} {
		middle, last := mean(r.Soak[third:2*third], m.of), mean(r.Soak[len(r.Soak)-third:], m.of)
		r.atMost(flat, "  "+m.what+", last third of second", last/middle, "", "%.1f and %.1f", middle, last)
	}
	first, last := r.Soak[third], r.Soak[len(r.Soak)-1]
	if n := last.Operations - first.Operations; n > 0 {
		r.add("  tables grow by", (last.DatabaseMiB-first.DatabaseMiB)*measure.MiB/measure.KiB/float64(n), "KiB",
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
