package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/lab/chaos/trial"
)

// options are the command line.
type options struct {
	seed                    uint64
	duration, rest          time.Duration
	machines, hosts         int
	clients                 int
	bin, out, rejudge, only string
	steppable               bool
	keep                    bool
}

func parse(args []string) (options, error) {
	o := options{}
	f := flag.NewFlagSet("kill", flag.ContinueOnError)
	f.Uint64Var(&o.seed, "seed", 0, "seed of the faults and the calls; 0 takes one from the clock")
	f.DurationVar(&o.duration, "duration", 5*time.Minute, "how long faults strike and clients work")
	f.DurationVar(&o.rest, "rest", 15*time.Minute, "how long the system may take to start, and to come to rest")
	f.IntVar(&o.machines, "machines", 300, "machines behind the site agent")
	f.IntVar(&o.hosts, "hosts", 20, "machines with an agent of their own")
	f.IntVar(&o.clients, "clients", 64, "clients that call at the same time")
	f.StringVar(&o.bin, "bin", "dist/chaos/stepped", "directory of the programs")
	f.BoolVar(&o.steppable, "steppable", true, "the programs are built with steppable clocks; see lab/chaos overlay")
	f.StringVar(&o.only, "only", "", "draw no faults but these, such as kill-agent,cut-site")
	f.StringVar(&o.out, "out", "dist/kill", "where the history of the run is kept")
	f.StringVar(&o.rejudge, "rejudge", "", "judge the history below this directory again, and run nothing")
	f.BoolVar(&o.keep, "keep", false, "keep the history of a run without violations too")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	if o.machines < 1 || o.hosts < 1 || o.clients < 1 {
		return o, errors.New("--machines, --hosts and --clients are at least 1")
	}
	return o, checkNames(o.only)
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == "record" {
		exit(trial.Record(os.Args[2], os.Args[3]))
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "kill:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.rejudge != "" {
		exit(rejudge(o.rejudge, os.Stdout))
	}
	exit(run(ctx, o, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "kill:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run breaks one system, judges it and prints the report. It returns an error if a promise was broken.
func run(ctx context.Context, o options, w io.Writer) (err error) {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	fmt.Fprintf(w, "seed %d\n", o.seed)
	f, err := newFleet(ctx, o)
	if err != nil {
		return fmt.Errorf("start the system: %w", err)
	}
	defer func() { err = errors.Join(err, f.close()) }()
	h, err := f.breakAndCollect(ctx)
	if err != nil {
		return errors.Join(err, f.keepLogs())
	}
	found := findings(h)
	if len(found) > 0 || o.keep {
		if err := errors.Join(keepHistory(o.out, h), f.keepLogs()); err != nil {
			return err
		}
	}
	report(w, o, h, found)
	if len(found) > 0 {
		return fmt.Errorf("%d violations; run it again with --seed %d, or judge it again with --rejudge %s", len(found),
			o.seed, o.out)
	}
	return nil
}
