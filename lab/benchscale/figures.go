package main

import (
	"context"
	"fmt"

	"github.com/ingot-metal/ingot/lab/results"
)

const aboutScale = "Calls, walks and the controller's own work in a small and in a large fleet, through the frontpage with " +
	"TLS and a bearer token. What does not grow with the fleet is flat."

// store puts the figures of the report into the file of results.
func (r report) store(ctx context.Context, path string) error {
	run, err := results.Run{Name: "scale", Title: "A million machines", About: aboutScale, Figures: r.figures()}.
		Here(ctx, "lab/benchscale")
	if err != nil {
		return err
	}
	return results.Store(path, run)
}

func (r report) figures() []results.Figure {
	var out []results.Figure
	small, large := r.Fleets[0], r.Fleets[len(r.Fleets)-1]
	changes := since(large.changed)
	for i, c := range large.Calls {
		f := results.Figure{What: c.Name + ": p50", Value: c.P50, Unit: "ms",
			Says: fmt.Sprintf("With %d machines; p99 %.1f ms; with %d machines %.1f and %.1f ms.", large.Machines, c.P99,
				small.Machines, small.Calls[i].P50, small.Calls[i].P99)}
		if c.Name == changes {
			f.Limit = results.AtMost(mostSince)
		}
		out = append(out, f)
	}
	cpu := large.Reconcile
	out = append(out,
		results.Figure{What: "processor time of a page of changes", Value: cpu.Sum(), Unit: "ms", Says: fmt.Sprintf(
			"Controller %.1f, Postgres %.1f, client %.1f ms.", cpu.Controller, cpu.Postgres, cpu.Own)},
		results.Figure{What: "full walk", Value: large.Walk.PerSecond, Unit: "machines/s",
			Limit: results.AtLeast(leastWalk, ""), Says: fmt.Sprintf(
				"The database alone gives %.0f machines/s of the same pages.", large.Raw)})
	for _, l := range large.Loops {
		out = append(out, results.Figure{What: l.Name + ": p50", Value: l.P50, Unit: "ms",
			Says: fmt.Sprintf("The controller does this by itself, each %.0f s.", l.Every)})
	}
	return append(out,
		results.Figure{What: "memory of a flood", Value: r.Flood.Growth, Unit: "MiB", Limit: results.AtMost(mostFlood),
			Says: "What the worst of four floods adds to the controller."},
		results.Figure{What: "another client's p99 in the flood", Value: r.Flood.During.P99, Unit: "ms",
			Limit: results.AtMost(mostPolite), Says: fmt.Sprintf("%d of its calls were refused.", r.Flood.PoliteRefused)})
}
