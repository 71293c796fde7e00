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
)

// options are the command line.
type options struct {
	bin      string
	json     bool
	keep     bool
	profile  string
	kind     string
	fill     int
	clients  int
	scale    int
	duration time.Duration
	agents   int
	sessions int
	probes   int
	idle     time.Duration
	limit    time.Duration
}

func main() {
	o := options{}
	flag.StringVar(&o.bin, "bin", "bin", "directory of the binaries")
	flag.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory with logs and data")
	flag.StringVar(&o.profile, "profile", "", "run the controller in this process and write a CPU profile of the load to this file")
	flag.IntVar(&o.fill, "fill", 0, "machines that are in the database besides, such as 1000000: what the load does must not get slower")
	flag.StringVar(&o.kind, "kind", kindReboot, "what the load does to machines: reboot, which ends the agent's session, or netboot, which does not")
	flag.IntVar(&o.clients, "clients", 8, "concurrent clients, of pgbench and of the controller")
	flag.IntVar(&o.scale, "scale", 10, "pgbench's scale: 100,000 rows each")
	flag.DurationVar(&o.duration, "duration", 15*time.Second, "how long each throughput is measured")
	flag.IntVar(&o.agents, "agents", 200, "simulated machines under load")
	flag.IntVar(&o.sessions, "sessions", 2000, "idle sessions for the memory part; 0 leaves it out")
	flag.IntVar(&o.probes, "probes", 50, "operations, one after the other, for the latency of an idle system")
	flag.DurationVar(&o.idle, "idle", 20*time.Second, "how long things rest before their memory is read")
	flag.DurationVar(&o.limit, "limit", 4*time.Minute, "give up after this time")
	flag.Parse()
	if o.kind != kindReboot && o.kind != kindNetboot {
		fmt.Fprintf(os.Stderr, "bench: --kind %s: it is %s or %s\n", o.kind, kindReboot, kindNetboot)
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
	if o.json {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	return r.print(os.Stdout)
}

// say tells a human what goes on; the results alone go to standard output.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
