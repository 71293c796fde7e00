package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// report is what was measured of each size. Latencies are in milliseconds.
type report struct {
	Fleets []fleet `json:"fleets"`
	Flood  flood   `json:"flood"`
	// MigrationSeconds is how long the newest migration takes on the large fleet.
	MigrationSeconds float64 `json:"migration_seconds"`
	TookSeconds      float64 `json:"took_seconds"`
}

type fleet struct {
	Machines    int     `json:"machines"`
	FillSeconds float64 `json:"fill_seconds"`
	Calls       []named `json:"calls"`
	// Reconcile is the processor time of a page of changes since a time, in milliseconds.
	Reconcile benchrig.CPUUse `json:"reconcile_cpu_ms"`
	Walk      walk            `json:"walk"`
	// Raw is how fast the same pages come out of the database, to a client of its own that does not look at them.
	Raw float64 `json:"database_machines_per_second"`
	// Fresh are calls right after the load, before the database has gathered statistics, and FreshScanned the rows that
	// scans of whole tables have read for them.
	Fresh        []named `json:"right_after_the_load"`
	FreshScanned int64   `json:"right_after_the_load_rows_scanned"`
	Loops        []loop  `json:"loops"`
	Idle         idle    `json:"idle"`

	changed int
}

type named struct {
	Name string `json:"name"`
	measure.Latency
}

// loop is one piece of the controller's own work, and how often it does it.
type loop struct {
	Name  string  `json:"name"`
	Every float64 `json:"every_seconds"`
	measure.Latency
}

// walk is about all machines, one page after the other.
type walk struct {
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"machines_per_second"`
	// CPU is in microseconds for each machine.
	CPU benchrig.CPUUse `json:"cpu_us_per_machine"`
}

// idle is what a controller does that nobody asks anything.
type idle struct {
	// CPU is in milliseconds a second.
	CPU benchrig.CPUUse `json:"cpu_ms_per_second"`
	// ScannedPerSecond are the rows that scans of whole tables have read.
	ScannedPerSecond float64 `json:"rows_scanned_per_second"`
}

func (r report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(what string, cell func(f fleet) string) {
		fmt.Fprint(w, what)
		for _, f := range r.Fleets {
			fmt.Fprint(w, "\t", cell(f))
		}
		fmt.Fprintln(w)
	}
	row("machines", func(f fleet) string { return fmt.Sprint(f.Machines) })
	for i, c := range r.Fleets[0].Calls {
		row(c.Name, func(f fleet) string { return text(f.Calls[i].Latency) })
	}
	row("  processor time of a page of changes", func(f fleet) string {
		return fmt.Sprintf("%.1f ms controller, %.1f ms Postgres, %.1f ms client", f.Reconcile.Controller,
			f.Reconcile.Postgres, f.Reconcile.Own)
	})
	row("full walk",
		func(f fleet) string { return fmt.Sprintf("%.0f machines/s (%.1f s)", f.Walk.PerSecond, f.Walk.Seconds) })
	row("  the same pages, of the database alone", func(f fleet) string {
		return fmt.Sprintf("%.0f machines/s; the walk has %.2f of it", f.Raw, f.Walk.PerSecond/max(f.Raw, 1))
	})
	row("  processor time of a machine", func(f fleet) string {
		return fmt.Sprintf("%.1f µs controller, %.1f µs Postgres, %.1f µs client", f.Walk.CPU.Controller, f.Walk.CPU.Postgres,
			f.Walk.CPU.Own)
	})
	for i, c := range r.Fleets[0].Fresh {
		row("right after the load: "+c.Name, func(f fleet) string { return text(f.Fresh[i].Latency) })
	}
	row("  rows read by scans of whole tables", func(f fleet) string { return fmt.Sprint(f.FreshScanned) })
	for i, l := range r.Fleets[0].Loops {
		row(fmt.Sprintf("each %.0f s: %s", l.Every, l.Name), func(f fleet) string { return text(f.Loops[i].Latency) })
	}
	row("controller left alone, each second", func(f fleet) string {
		return fmt.Sprintf("%.1f ms controller, %.1f ms Postgres", f.Idle.CPU.Controller, f.Idle.CPU.Postgres)
	})
	row("  rows read by scans of whole tables",
		func(f fleet) string { return fmt.Sprintf("%.0f /s", f.Idle.ScannedPerSecond) })
	fmt.Fprintf(w, "migration 15 on all of them\t%.1f s\n", r.MigrationSeconds)
	r.Flood.print(w)
	for _, v := range r.verdicts() {
		fmt.Fprintf(w, "%s\t%s: %s\n", v.what, metOr(v.met), v.saying)
	}
	fmt.Fprintf(w, "took\t%.0f s on %d processors\n", r.TookSeconds, runtime.NumCPU())
	return w.Flush()
}

func text(l measure.Latency) string { return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", l.P50, l.P99) }
