// Command dhcp measures how many machines per second get an address (DISCOVER, OFFER, REQUEST, ACK) from the site
// agent's DHCP server and from dnsmasq, side by side on this machine: same cable, same load, same disk for the leases.
//
// Server and load are in network namespaces of their own, joined by a veth pair; nothing outside sees a packet. The
// load is so many machines at once, each with a MAC address that the server has not seen before; one that has its
// address makes room for the next. Both servers are measured twice: with leases that are on the disk before they are
// acknowledged, which is what they do by default, and with leases in memory only.
//
// It needs root and dnsmasq.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

type options struct {
	duration time.Duration
	window   int
	serve    string
	store    string
	inside   bool
}

func main() {
	var o options
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "how long each server is loaded")
	flag.IntVar(&o.window, "machines", 128, "how many machines ask at once")
	flag.StringVar(&o.serve, "serve", "", "internal: be the server on this device")
	flag.StringVar(&o.store, "store", "", "internal: the directory of the server's leases")
	flag.BoolVar(&o.inside, "inside", false, "internal: the namespace is there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench dhcp:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	switch {
	case o.serve != "":
		return serve(ctx, o.serve, o.store)
	case o.inside:
		return measureAll(ctx, o, out)
	}
	return again(ctx)
}

// again runs this program in a network namespace of its own.
func again(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("it makes network namespaces, which needs root")
	}
	if _, err := exec.LookPath("dnsmasq"); err != nil {
		return fmt.Errorf("find what to compare with (Debian: dnsmasq-base): %w", err)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"-inside"}, os.Args[1:]...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd.Run()
}

// result is what one server did.
type result struct {
	name     string
	done     int
	took     time.Duration
	p50, p99 time.Duration
	repeated int
	refused  int
	cpu      time.Duration
}

func (r result) rate() float64 { return float64(r.done) / r.took.Seconds() }

func measureAll(ctx context.Context, o options, out io.Writer) error {
	var all []result
	for _, s := range servers() {
		r, err := measure(ctx, o, s)
		if err != nil {
			return fmt.Errorf("measure %s: %w", s.name, err)
		}
		all = append(all, r)
	}
	return table(out, o, all)
}

func table(out io.Writer, o options, all []result) error {
	fmt.Fprintf(out, "DHCP: machines that get an address, %d at a time, %v for each server\n", o.window, o.duration)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "server\tper second\tp50\tp99\tcpu of one\tasked again\trefused\t")
	for _, r := range all {
		fmt.Fprintf(w, "%s\t%.0f\t%v\t%v\t%v\t%d\t%d\t\n", r.name, r.rate(), r.p50.Round(10*time.Microsecond),
			r.p99.Round(10*time.Microsecond),
			(r.cpu / time.Duration(max(r.done, 1))).Round(time.Microsecond), r.repeated, r.refused)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	fmt.Fprintf(out, "ingot / dnsmasq: %.2f with leases on the disk, %.2f in memory\n", all[0].rate()/all[1].rate(),
		all[2].rate()/all[3].rate())
	return nil
}
