// Package console measures the web console's first screen and its list in Chromium, with very many machines. Each
// figure stands beside its aim and, where there is one, beside its bound: the bare SQL, or the paint of an empty page.
// It needs Node and Chromium.
package console

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/fill"
)

const about = "The web console with very many machines: its calls beside the bare SQL, its pages in Chromium, and open " +
	"consoles by the hundred."

// options are the command line.
type options struct {
	web                     string
	machines, rate, streams int
	memory                  time.Duration
	chromium                bool
}

// bench is the database, the controller, and the figures.
type bench struct {
	*rig.Rig
	o    options
	rest *rest
	run  *report.Run
}

// Console declares the options and returns what measures with them.
func Console(f *flag.FlagSet, cfg *rig.Config) func(context.Context, *report.Report) error {
	var o options
	cfg.Flags(f)
	f.StringVar(&o.web, "web", "controller/console/web", "directory of the console's sources, with its tools installed")
	f.IntVar(&o.machines, "machines", 100_000, "machines of the fleet")
	f.IntVar(&o.rate, "rate", 500, "changes a second while the page is looked at")
	f.IntVar(&o.streams, "streams", 200, "open consoles")
	f.DurationVar(&o.memory, "memory", 3*time.Minute, "how long a tab is left open, with changes, for its memory")
	f.BoolVar(&o.chromium, "browser", true, "measure in Chromium; without it the calls and streams alone")
	return func(ctx context.Context, r *report.Report) (err error) {
		cfg.REST, cfg.Settings = true, "log: {level: warn}\n"
		b := &bench{o: o, run: r.Run("console", "The web console", about)}
		if b.Rig, err = rig.Open(ctx, *cfg); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		if err := b.Up(ctx, 1); err != nil {
			return err
		}
		if b.rest, err = newREST(b.Rig); err != nil {
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
			rig.Say("%s", part.what)
			if err := part.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", part.what, err)
			}
		}
		return nil
	}
}

// beside describes a figure as a multiple of its bound.
func beside(value, bound float64, what string) string {
	return fmt.Sprintf("%.1f times %s (%.1f ms)", value/bound, what, bound)
}

// fill makes the fleet: machines in service, one in fifty without a system on its disk.
func (b *bench) fill(ctx context.Context) error {
	if err := fill.Rows(ctx, b.Admin, 0, b.o.machines, func(done int) { rig.Say("  %d", done) }); err != nil {
		return err
	}
	for _, q := range []string{
		"SET statement_timeout = 0", "SET session_replication_role = replica",
		`INSERT INTO machine_conditions (machine_id, type, status, reason, last_transition)
		 SELECT machine_id, 'Provisioned', right(machine_id, 2)::int % 50 <> 7, 'bench', now() FROM machines`,
		// The past begins with what they are, as after the migration that keeps states.
		// What a machine is found by: its record, and an inventory with two ports and two disks.
		"SELECT name_machine(m) FROM machines m",
		`SELECT set_machine_names(machine_id, 'inventory',
		    '{SERIAL,UUID,ASSET_TAG,HOSTNAME,MAC,MAC,DISK,DISK}',
		    ARRAY['SN' || substr(h, 1, 10), h, 'AT-' || substr(h, 3, 6), machine_id || '.example.org',
		          '52:54:00:' || substr(h, 1, 2) || ':' || substr(h, 4, 2) || ':01',
		          '52:54:00:' || substr(h, 1, 2) || ':' || substr(h, 4, 2) || ':02',
		          'D1-' || substr(h, 5, 12), 'D2-' || substr(h, 6, 12)])
		 FROM (SELECT machine_id, md5(machine_id) AS h FROM machines) x`,
		`DO $$ BEGIN PERFORM machine_states_add(x.change_xid) FROM (SELECT DISTINCT change_xid FROM machines) x; END $$`,
		"SET session_replication_role = origin", "RESET statement_timeout",
		"UPDATE cluster_state SET states_since = clock_timestamp()",
		"VACUUM (ANALYZE) machine_states, machine_words, machine_names",
	} {
		if _, err := b.Admin.Exec(ctx, q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return fill.Analyze(ctx, b.Admin)
}
