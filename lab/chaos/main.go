package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/chaos/trial"
)

// options are the command line.
type options struct {
	trial.Options
	runs, cells, controllers, reuse int
	wideEvery                       int
	seed                            uint64
	out, rejudge                    string
	limit                           time.Duration
	json, keepGoing, keep, resume   bool
}

func parse(args []string) (options, error) {
	o := options{}
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.IntVar(&o.runs, "runs", 100, "how many runs")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the first run; the others follow")
	f.IntVar(&o.cells, "cells", 0,
		"how many systems are broken side by side; 0 is four for each processor, since most of a run is waiting")
	f.IntVar(&o.controllers, "controllers", 0, "controllers of each system; 0 takes one, two and three in turn")
	f.IntVar(&o.Agents, "agents", 3, "agents of each system")
	f.IntVar(&o.wideEvery, "wide-every", 10,
		"one run in so many is in a wide world, with many machines behind the agent of a site; 0 is none")
	f.IntVar(&o.reuse, "reuse", 60, "runs after which a system is replaced by a fresh one")
	f.StringVar(&o.Bin, "bin", "bin", "directory of the binaries")
	f.StringVar(&o.Stepped, "stepped", "",
		"directory of binaries whose clocks can be stepped, which half of the systems then use; see the subcommand overlay")
	f.StringVar(&o.Old, "old", "",
		"an older controller, which one of several controllers of each wide world runs; see scripts/build-old-controller")
	f.StringVar(&o.out, "out", "dist/chaos", "where runs with violations are kept")
	f.StringVar(&o.Planted, "planted", "",
		"take one protection away (binaries with the tag planted), and stop at the first violation")
	f.StringVar(&o.Only, "only", "", "draw no faults but these, such as kill-agent,cut-agent")
	f.StringVar(&o.rejudge, "rejudge", "", "judge this history again, or all below this directory, and run nothing")
	f.DurationVar(&o.limit, "limit", 4*time.Hour, "begin no run after this time")
	f.DurationVar(&o.Quiet, "rest", 10*time.Minute, "how long a system may take to come to rest once the faults are over")
	f.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	f.BoolVar(&o.resume, "resume", false, "go on where work with the same --out and --seed was cut short")
	f.BoolVar(&o.keepGoing, "keep-going", true, "go on after a violation")
	f.BoolVar(&o.keep, "keep", false, "keep every history, not only those with violations")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.cells == 0 {
		o.cells = 4 * runtime.NumCPU()
	}
	if o.Only == "" {
		o.Only = program.Classes[o.Planted]
	}
	if every, known := program.WideEvery(o.Planted); known && !isSet(f, "wide-every") {
		o.wideEvery = every
	}
	for _, kind := range strings.Split(o.Only, ",") {
		if kind != "" && !slices.ContainsFunc(slices.Concat(plan.ClockWeights, plan.StandbyWeights, plan.Weights),
			func(w plan.Weight) bool { return w.Kind == kind }) {
			return o, fmt.Errorf("--only: there is no fault %q", kind)
		}
	}
	return o, nil
}

func isSet(f *flag.FlagSet, name string) (set bool) {
	f.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == "record" {
		exit(trial.Record(os.Args[2], os.Args[3]))
	}
	if len(os.Args) == 3 && os.Args[1] == "overlay" {
		exit(program.Overlay(os.Args[2]))
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	exit(run(o))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.rejudge != "" {
		return rejudge(o.rejudge, os.Stdout)
	}
	r, err := breakThings(ctx, o)
	if r != nil {
		if perr := r.print(os.Stdout, o.json); perr != nil {
			return perr
		}
	}
	if err != nil {
		return err
	}
	return r.verdict(o)
}
