// Command bench measures the web console's first screen and its list in Chromium, with very many machines. It starts
// a private Postgres and a controller as a process of its own, fills in the fleet, and prints each figure beside its
// aim and, where there is one, beside what bounds it: the bare SQL, or the paint of an empty page. It needs Node and
// Chromium.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/fill"
)

// options are the command line.
type options struct {
	bin, web string
	machines int
	rate     int
	streams  int
	memory   time.Duration
	limit    time.Duration
	chromium bool
}

func main() {
	o := options{}
	flag.StringVar(&o.bin, "bin", "bin", "directory of the binaries")
	flag.StringVar(&o.web, "web", "controller/console/web", "directory of the console's sources, with its tools installed")
	flag.IntVar(&o.machines, "machines", 100_000, "machines of the fleet")
	flag.IntVar(&o.rate, "rate", 500, "changes a second while the page is looked at")
	flag.IntVar(&o.streams, "streams", 200, "open consoles")
	flag.DurationVar(&o.memory, "memory", 3*time.Minute, "how long a tab is left open, with changes, for its memory")
	flag.DurationVar(&o.limit, "limit", time.Hour, "give up after this time")
	flag.BoolVar(&o.chromium, "browser", true, "measure in Chromium; without it the calls and streams alone")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// figure is one line of the table.
type figure struct {
	what  string
	value float64
	unit  string
	// aim is the most that it should be, or the least where atLeast is set; 0 is none.
	aim     float64
	atLeast bool
	// of is what bounds it, in the same unit, and ofWhat what that is.
	of     float64
	ofWhat string
	note   string
}

func (f figure) String() string {
	aim, bound := "-", "-"
	if f.aim != 0 {
		sign, met := "≤", f.value <= f.aim
		if f.atLeast {
			sign, met = "≥", f.value >= f.aim
		}
		aim = fmt.Sprintf("%s %g: %s", sign, f.aim, map[bool]string{true: "met", false: "MISSED"}[met])
	}
	if f.of > 0 {
		bound = fmt.Sprintf("%.1f times %s (%.1f %s)", f.value/f.of, f.ofWhat, f.of, f.unit)
	}
	return fmt.Sprintf("%s\t%.1f %s\t%s\t%s\t%s", f.what, f.value, f.unit, aim, bound, f.note)
}

// bench is the database, the controller, and what was measured.
type bench struct {
	*benchrig.Rig
	o       options
	rest    *rest
	figures []figure
}

func (b *bench) add(f figure) {
	benchrig.Say("%s: %.1f %s", f.what, f.value, f.unit)
	b.figures = append(b.figures, f)
}

func run(o options) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	r, err := benchrig.Open(ctx, benchrig.Config{Bin: o.bin, REST: true, Settings: "log: {level: warn}\n"})
	if err != nil {
		return err
	}
	b := &bench{Rig: r, o: o}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.Up(ctx, 1); err != nil {
		return err
	}
	if b.rest, err = newREST(r); err != nil {
		return err
	}
	for _, part := range []struct {
		what string
		run  func(context.Context) error
		skip bool
	}{
		{"fill in the machines", b.fill, false}, {"the map's call", b.calls, false},
		{"the browser", b.browse, !o.chromium}, {"open consoles", b.consoles, o.streams == 0},
	} {
		if part.skip {
			continue
		}
		benchrig.Say("%s", part.what)
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
	}
	return b.print()
}

func (b *bench) print() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%d machines, %d processors\tvalue\taim\tbeside its bound\t\n", b.o.machines, runtime.NumCPU())
	for _, f := range b.figures {
		fmt.Fprintln(w, f)
	}
	return w.Flush()
}

// fill makes the fleet: machines in service, one in fifty without a system on its disk.
func (b *bench) fill(ctx context.Context) error {
	if err := fill.Rows(ctx, b.Admin, 0, b.o.machines, func(done int) { benchrig.Say("  %d", done) }); err != nil {
		return err
	}
	for _, q := range []string{
		"SET statement_timeout = 0", "SET session_replication_role = replica",
		`INSERT INTO machine_conditions (machine_id, type, status, reason, last_transition)
		 SELECT machine_id, 'Provisioned', right(machine_id, 2)::int % 50 <> 7, 'bench', now() FROM machines`,
		// The past begins with what they are, as after the migration that keeps states.
		`DO $$ BEGIN PERFORM machine_states_add(x.change_xid) FROM (SELECT DISTINCT change_xid FROM machines) x; END $$`,
		"SET session_replication_role = origin", "RESET statement_timeout",
		"UPDATE cluster_state SET states_since = clock_timestamp()", "VACUUM (ANALYZE) machine_states, machine_words",
	} {
		if _, err := b.Admin.Exec(ctx, q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return fill.Analyze(ctx, b.Admin)
}
