// Command benchscale measures a controller whose database holds very many machines, through its frontpage: TLS, a
// bearer token, and a client as everybody's. It starts a private Postgres and the controller as a process of its own,
// fills in a small fleet, measures, fills in the large one, measures again, and prints both side by side: what does not
// grow with the fleet shows at a glance.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/lab/results"
)

// options are the command line.
type options struct {
	bin      string
	results  string
	json     bool
	keep     bool
	small    int
	machines int
	changed  int
	calls    int
	idle     time.Duration
	limit    time.Duration
	profile  string
}

func main() {
	o := options{}
	flag.StringVar(&o.bin, "bin", "bin", "directory of the binaries")
	flag.StringVar(&o.results, "results", "", "store the figures in this file, such as "+results.Path)
	flag.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory with logs and data")
	flag.IntVar(&o.small, "small", 1000, "machines that are measured first")
	flag.IntVar(&o.machines, "machines", 1_000_000, "machines that are measured then")
	flag.IntVar(&o.changed, "changed", 1000,
		"machines that have changed when a client reconciles; at most 1000, which is one page")
	flag.IntVar(&o.calls, "calls", 200, "calls of each kind")
	flag.DurationVar(&o.idle, "idle", 65*time.Second,
		"how long the controller is left alone while its own work is measured")
	flag.DurationVar(&o.limit, "limit", 20*time.Minute, "give up after this time")
	flag.StringVar(&o.profile, "profile", "",
		"run the controller in this process and write a CPU profile of the large walk to this file")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "benchscale:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	r, err := measureAll(ctx, o)
	if err != nil {
		return err
	}
	if o.results != "" {
		if err := r.store(ctx, o.results); err != nil {
			return err
		}
	}
	if o.json {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	return r.print(os.Stdout)
}
