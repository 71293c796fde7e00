package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/lab/results"
)

// options are the command line.
type options struct {
	bin      string
	json     bool
	keep     bool
	profile  string
	results  string
	kind     string
	fill     int
	clients  counts
	scale    int
	duration time.Duration
	agents   int
	// siteMachines are behind one site agent.
	siteMachines int
	siteClients  counts
	onlySite     bool
	sessions     int
	probes       int
	idle         time.Duration
	limit        time.Duration
}

// counts is a list of numbers of clients.
type counts []int

// String implements flag.Value.
func (c *counts) String() string {
	out := make([]string, 0, len(*c))
	for _, n := range *c {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, ",")
}

// Set implements flag.Value.
func (c *counts) Set(s string) error {
	*c = nil
	for _, word := range strings.Split(s, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no number of clients", word)
		}
		*c = append(*c, n)
	}
	return nil
}

func main() {
	o := options{}
	flag.StringVar(&o.bin, "bin", "bin", "directory of the binaries")
	flag.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory with logs and data")
	flag.StringVar(&o.results, "results", "", "store the figures in this file, such as "+results.Path)
	flag.StringVar(&o.profile, "profile", "",
		"run the controller in this process and write a CPU profile of the load to this file")
	flag.IntVar(&o.fill, "fill", 0,
		"measure again with so many machines in the database, such as 1000000: it must not get slower")
	flag.StringVar(&o.kind, "kind", kindNetboot,
		"what the load does to machines: reboot, which ends the agent's session, or netboot, which does not")
	o.clients = counts{8, 32, 128, 256}
	flag.Var(&o.clients, "clients",
		"numbers of concurrent clients, of pgbench and of the controller, each measured by itself")
	flag.IntVar(&o.scale, "scale", 100, "pgbench's scale: 100,000 rows each")
	flag.DurationVar(&o.duration, "duration", 15*time.Second, "how long each throughput is measured")
	flag.IntVar(&o.agents, "agents", 512, "simulated machines under load")
	flag.IntVar(&o.siteMachines, "site-machines", 1000, "simulated machines behind one site agent; 0 leaves them out")
	o.siteClients = counts{8, 64}
	flag.Var(&o.siteClients, "site-clients", "numbers of concurrent clients that reboot those")
	flag.BoolVar(&o.onlySite, "only-site", false, "measure nothing but the machines behind a site agent")
	flag.IntVar(&o.sessions, "sessions", 2000, "idle sessions for the memory part; 0 leaves it out")
	flag.IntVar(&o.probes, "probes", 50, "operations, one after the other, for the latency of an idle system")
	flag.DurationVar(&o.idle, "idle", 20*time.Second, "how long things rest before their memory is read")
	flag.DurationVar(&o.limit, "limit", 15*time.Minute, "give up after this time")
	flag.Parse()
	if o.kind != kindReboot && o.kind != kindNetboot {
		fmt.Fprintf(os.Stderr, "bench: --kind %s: it is %s or %s\n", o.kind, kindReboot, kindNetboot)
		os.Exit(2)
	}
	if most := slices.Max(o.clients); o.agents < most {
		fmt.Fprintf(os.Stderr, "bench: %d clients need as many machines: --agents %d\n", most, o.agents)
		os.Exit(2)
	}
	if most := slices.Max(o.siteClients); o.siteMachines > 0 && o.siteMachines < most {
		fmt.Fprintf(os.Stderr, "bench: %d clients need as many machines: --site-machines %d\n", most, o.siteMachines)
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
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
