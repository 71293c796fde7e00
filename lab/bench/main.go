// Command bench measures this tree on this machine, and prints each figure beside its limit. Each scenario runs from
// the binaries in bin/, on loopback or in networks of its own, and ends by itself:
//
//	go run ./lab/bench SCENARIO [flags]
//
// Without a scenario it is operations. `--help` after a scenario prints its flags. With --results the figures replace
// those of the same run in a file, and the performance page is written anew. No figure fails a run:
// docs/reference/performance.md shows the stored ones, each beside its limit.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/lab/bench/agents"
	"github.com/ingot-metal/ingot/lab/bench/console"
	"github.com/ingot-metal/ingot/lab/bench/metal"
	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/bench/scale"
)

// scenario is one benchmark. Declare declares its flags and returns what measures with them.
type scenario struct {
	name, about string
	limit       time.Duration
	declare     func(*flag.FlagSet, *rig.Config) func(context.Context, *report.Report) error
}

var scenarios = []scenario{
	{"operations", "operations a second beside pgbench, dispatch, idle sessions and agents, a site's machines",
		20 * time.Minute, agents.Operations},
	{"fleet", "sessions by the ten thousand: onboarding, memory, dispatch, storm, crowd; soak and sizing", 2 * time.Hour,
		agents.Fleet},
	{"scale", "calls, walks, the controller's own work and floods with 1,000 and with 1,000,000 machines",
		20 * time.Minute, scale.Scale},
	{"console", "the web console with very many machines, in Chromium", time.Hour, console.Console},
	{"dhcp", "leases a second beside dnsmasq (root)", time.Hour, metal.DHCP},
	{"http", "a site's boot server with many machines at once", time.Hour, metal.HTTP},
	{"write", "an image onto a disk, beside zstd and dd, in an emulated machine", time.Hour, metal.Write},
	{"install", "a machine installed through the API and by hand (root)", 4 * time.Hour, metal.Install},
}

// parts are what this program is for another process of its own. They get the further arguments.
var parts = map[string]func(context.Context, []string) error{
	agents.Verb:      func(ctx context.Context, _ []string) error { return agents.Serve(ctx) },
	rig.ProfiledVerb: func(ctx context.Context, args []string) error { return rig.RunProfiled(ctx, args[0], args[1]) },
	metal.DHCPVerb:   func(ctx context.Context, args []string) error { return metal.ServeDHCP(ctx, args[0]) },
	metal.HTTPVerb:   func(ctx context.Context, args []string) error { return metal.ServeHTTP(ctx, args[0], args[1]) },
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	name, args := scenarios[0].name, os.Args[1:]
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	if err := run(ctx, name, args); err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", name, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, args []string) error {
	if part := parts[name]; part != nil {
		return part(ctx, args)
	}
	if name == "page" {
		return report.WritePage(report.Path)
	}
	known := "bench [SCENARIO] [flags]; scenarios:\n"
	for _, s := range scenarios {
		if s.name == name {
			return s.run(ctx, args)
		}
		known += fmt.Sprintf("  %-11s%s\n", s.name, s.about)
	}
	return fmt.Errorf("no such scenario\n%s  %-11s%s", known, "page", "the performance page from the stored figures")
}

func (s scenario) run(ctx context.Context, args []string) error {
	var cfg rig.Config
	f := flag.NewFlagSet(s.name, flag.ExitOnError)
	path := f.String("results", "", "store the figures in this file, such as "+report.Path)
	asJSON := f.Bool("json", false, "print JSON instead of a table")
	limit := f.Duration("limit", s.limit, "give up after this time")
	measure := s.declare(f, &cfg)
	if err := f.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	var r report.Report
	began := time.Now()
	err := measure(ctx, &r)
	rig.Say("took %s", time.Since(began).Round(time.Second))
	if err == nil && *path != "" {
		err = r.Store(ctx, *path, "lab/bench")
	}
	// What was measured before an error is shown too.
	if *asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return errors.Join(err, enc.Encode(r))
	}
	return errors.Join(err, r.Print(os.Stdout))
}
