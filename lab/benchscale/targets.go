package main

import (
	"fmt"
	"runtime"

	"github.com/ingot-metal/ingot/lab/measure"
)

const (
	// mostSince is the target of a reconcile by time with 1,000 changed, in milliseconds, leastWalk that of a full walk,
	// in machines a second, and mostGrowth how much more a call may take in the large fleet than in the small one and
	// still be called flat.
	mostSince, leastWalk, mostGrowth = 20.0, 30_000.0, 1.5
	// mostFlood is how much memory a flood may cost the controller, in MiB, and mostPolite how long the p99 of another
	// client's calls may take meanwhile, in milliseconds.
	mostFlood, mostPolite = 512.0, 250.0
)

// verdict is a target, whether it is met, and what says so.
type verdict struct {
	what   string
	met    bool
	saying string
}

func metOr(ok bool) string {
	if ok {
		return "met"
	}
	return "MISSED"
}

func (f fleet) call(name string) measure.Latency {
	for _, c := range f.Calls {
		if c.Name == name {
			return c.Latency
		}
	}
	return measure.Latency{}
}

// verdicts compares the large fleet with the targets, and says of what the processors were busy with.
func (r report) verdicts() []verdict {
	small, large := r.Fleets[0], r.Fleets[len(r.Fleets)-1]
	name := since(large.changed)
	a, b := small.call(name).P50, large.call(name).P50
	cpu := large.Walk.CPU
	all := cpu.Sum()
	// A client that asks for one page after the other has one processor's time at most, but for what overlaps.
	alone := 1e6 / max(all, 1)
	return []verdict{
		{fmt.Sprintf("target: reconcile of %d machines in %.0f ms", large.changed, mostSince), b <= mostSince,
			fmt.Sprintf("p50 %.1f ms, of %.1f ms of processor time", b, large.Reconcile.Sum())},
		{"target: flat in the size of the table", b <= a*mostGrowth,
			fmt.Sprintf("%.1f ms at %d, %.1f ms at %d machines", a, small.Machines, b, large.Machines)},
		{fmt.Sprintf("target: full walk at %.0f machines/s", leastWalk), large.Walk.PerSecond >= leastWalk, fmt.Sprintf(
			"%.0f /s; %.1f us of processor time each: controller %.0f %%, Postgres %.0f %%, client %.0f %%; one processor "+
				"would do %.0f /s, %d would do %.0f /s",
			large.Walk.PerSecond, all, 100*cpu.Controller/max(all, 1), 100*cpu.Postgres/max(all, 1), 100*cpu.Own/max(all, 1),
			alone,
			runtime.NumCPU(), alone*float64(runtime.NumCPU()))},
		{fmt.Sprintf("target: no more than %.0f MiB for a flood", mostFlood), r.Flood.Growth <= mostFlood,
			fmt.Sprintf("%.0f MiB", r.Flood.Growth)},
		{fmt.Sprintf("target: others' p99 below %.0f ms meanwhile", mostPolite), r.Flood.During.P99 <= mostPolite &&
			r.Flood.PoliteRefused == 0,
			fmt.Sprintf("p99 %.1f ms, %d refused", r.Flood.During.P99, r.Flood.PoliteRefused)},
	}
}
