package main

import (
	"context"
	"fmt"

	"github.com/ingot-metal/ingot/lab/measure"
	"github.com/ingot-metal/ingot/lab/results"
)

const aboutOperations = "Operations of one step from the RPC to SUCCEEDED, one after the other by each of so many clients, " +
	"beside `pgbench` (TPC-B-like) with as many clients on the same server. Controller, Postgres, simulated agents and " +
	"clients share the processors."

// store puts the figures of the report into the file of results.
func (r report) store(ctx context.Context, path string) error {
	var runs []results.Run
	if len(r.Operations) > 0 {
		runs = append(runs, r.operationsRun())
	}
	if len(r.BehindSite) > 0 {
		runs = append(runs, r.siteRun())
	}
	for _, run := range runs {
		run, err := run.Here(ctx, "lab/bench")
		if err != nil {
			return err
		}
		if err := results.Store(path, run); err != nil {
			return err
		}
	}
	return nil
}

func (r report) operationsRun() results.Run {
	return results.Run{
		Name: "operations", Title: "Operations", About: aboutOperations, Figures: r.figures(),
		Curve: &results.Curve{Title: "Operations a second", X: "clients", Measured: "operations",
			Limit: fmt.Sprintf("%.2f of pgbench", wantedRatio)},
	}
}

func (r report) figures() []results.Figure {
	var out []results.Figure
	for _, op := range r.Operations {
		tps := r.Pgbench.TPS[op.Clients]
		f := op.figure(results.AtLeast(wantedRatio*tps, fmt.Sprintf("%.2f of pgbench's %.0f tps", wantedRatio, tps)))
		f.X = float64(op.Clients)
		out = append(out, f)
	}
	if op := r.Filled; op.Done > 0 {
		few := r.Operations[len(r.Operations)-1].PerSecond
		out = append(out, op.figure(results.AtLeast(0.9*few, "0.90 of the rate with few machines")))
	}
	out = append(out,
		results.Figure{What: "dispatch, idle: p50", Value: r.IdleDispatch.P50, Unit: "ms", Limit: results.AtMost(8),
			Says: fmt.Sprintf("From created_at until the agent has the command, over %d operations one after the other.",
				r.IdleDispatch.N)},
		results.Figure{What: "dispatch, idle: p99", Value: r.IdleDispatch.P99, Unit: "ms", Limit: results.AtMost(30),
			Says: "The slowest of the same operations."},
		results.Figure{What: "agent, idle", Value: float64(r.AgentRSSBytes) / measure.MiB, Unit: "MiB",
			Limit: results.AtMost(25), Says: "Resident memory of an agent that has never had a command."})
	if s := r.Sessions; s.Sessions > 0 {
		out = append(out, results.Figure{What: "memory of an idle session", Value: s.RSSPerSession / measure.KiB, Unit: "KiB",
			Says: fmt.Sprintf("Growth of a fresh controller from none to %d sessions, by session.", s.Sessions)})
	}
	return out
}

func (t *throughput) figure(limit *results.Limit) results.Figure {
	what := fmt.Sprintf("operations, %d clients", t.Clients)
	if t.Fill > 0 {
		what = fmt.Sprintf("operations, %d clients, %d machines", t.Clients, t.Fill)
	}
	return results.Figure{What: what, Value: t.PerSecond, Unit: "/s", Limit: limit,
		Says: fmt.Sprintf("One takes %.0f ms (p99 %.0f), %.2f transactions and %.2f ms of processor time: controller %.2f, "+
			"Postgres %.2f, agents and clients %.2f.", t.Total.P50, t.Total.P99, t.Commits,
			t.CPU.Sum(), t.CPU.Controller, t.CPU.Postgres, t.CPU.Own)}
}
