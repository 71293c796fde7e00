// Command http measures how fairly a site's boot server serves many machines at once: how long the slowest takes
// against the fastest, at what rate, in how much memory.
//
// The server is a process of its own, on loopback; what it serves comes from a file instead of a controller. Each
// machine is a process too, for in one process they would compete with each other before they compete for the server;
// it throws away what it gets. Each case is measured several times and
// the median by ratio is shown, because on a small machine one stray process spoils a run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/ingot-metal/ingot/internal/clock"
)

type options struct {
	machines int
	mib      int
	runs     int
	limit    float64
	only     string
	serve    string
	machine  string
	rate     int64
	dir      string
}

func main() {
	var o options
	flag.IntVar(&o.machines, "machines", 64, "how many machines fetch at once")
	flag.IntVar(&o.mib, "mib", 128, "size of the image in MiB")
	flag.IntVar(&o.runs, "runs", 1, "how often each case is measured")
	flag.Float64Var(&o.limit, "limit", 2, "the ratio of slowest to fastest that is still fair")
	flag.StringVar(&o.only, "only", "", "measure only the cases that have this in their name")
	flag.StringVar(&o.serve, "serve", "", "internal: be the server of this file")
	flag.StringVar(&o.machine, "machine", "", "internal: be a machine that fetches this URL")
	flag.Int64Var(&o.rate, "rate", 0, "internal: bytes per second that the machine takes")
	flag.StringVar(&o.dir, "dir", "", "internal: the server's cache")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench http:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	switch {
	case o.serve != "":
		return serve(ctx, o)
	case o.machine != "":
		return machine(ctx, o)
	}
	return compare(ctx, o, out)
}

// testCase is one way in which machines fetch.
type testCase struct {
	name string
	path func(digest string) string
	// warm says that the file is at the site before anybody asks.
	warm bool
	// slow is how many of the machines take 2 MiB/s and no more; they don't count for the ratio.
	slow int
}

var cases = []testCase{
	{"image, at the site", blobPath, true, 0},
	{"image, on its way in", blobPath, false, 0},
	{"image, every 8th machine slow", blobPath, true, 8},
	{"unified kernel, parameters put in", func(string) string { return "/boot/" + token + "/uki.efi" }, true, 0},
}

func blobPath(digest string) string { return "/blob/" + digest }

func compare(ctx context.Context, o options, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%d machines\tMiB each\tfastest s\tslowest s\tratio\tMiB/s\tserver MiB\tserver CPU s\t\n",
		o.machines)
	var unfair []error
	for _, c := range cases {
		if !strings.Contains(c.name, o.only) {
			continue
		}
		var all []outcome
		for range o.runs {
			got, err := measureOnce(ctx, o, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			all = append(all, got)
		}
		slices.SortFunc(all, func(a, b outcome) int { return int(1000 * (a.ratio() - b.ratio())) })
		m := all[len(all)/2]
		fmt.Fprintf(table, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.0f\t%.1f\t%.2f\t\n", c.name, o.mib, m.fastest.Seconds(),
			m.slowest.Seconds(),
			m.ratio(), m.rate, m.peak, m.cpu.Seconds())
		if m.ratio() > o.limit {
			unfair = append(unfair, fmt.Errorf("%s: the slowest machine takes %.2f times as long as the fastest", c.name,
				m.ratio()))
		}
	}
	return errors.Join(append(unfair, table.Flush())...)
}

var realTime = clock.Real()
