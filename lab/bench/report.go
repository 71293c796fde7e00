package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"

	"github.com/ingot-metal/ingot/lab/measure"
)

// report is everything that was measured. Durations are in milliseconds, sizes in bytes.
type report struct {
	CPUs           int              `json:"cpus"`
	Clients        int              `json:"clients"`
	Pgbench        pgbenchResult    `json:"pgbench"`
	Operations     throughput       `json:"operations"`
	IdleDispatch   measure.Latency  `json:"dispatch_idle"`
	LoadedDispatch measure.Latency  `json:"dispatch_under_load"`
	Sessions       sessionMemory    `json:"idle_sessions"`
	AgentRSSBytes  int64            `json:"agent_rss_bytes"`
	Binaries       map[string]int64 `json:"binary_bytes"`
	TookSeconds    float64          `json:"took_seconds"`
}

type pgbenchResult struct {
	TPS   float64 `json:"tps"`
	Scale int     `json:"scale"`
}

// throughput is about operations from the RPC to SUCCEEDED.
type throughput struct {
	Kind           string          `json:"kind"`
	PerSecond      float64         `json:"per_second"`
	RatioToPgbench float64         `json:"ratio_to_pgbench"`
	Done           int             `json:"done"`
	Failed         int             `json:"failed"`
	Agents         int             `json:"agents"`
	Total          measure.Latency `json:"rpc_to_succeeded"`
	CPU            cpuUse          `json:"cpu_ms_per_operation"`
	Commits        float64         `json:"commits_per_operation"`
}

// cpuUse is processor time in milliseconds, per operation or per second.
type cpuUse struct {
	Controller float64 `json:"controller"`
	Postgres   float64 `json:"postgres"`
	Agents     float64 `json:"agents_and_clients"`
}

// sessionMemory is what sessions cost the controller.
type sessionMemory struct {
	Sessions       int     `json:"sessions"`
	RSSBefore      int64   `json:"rss_before_bytes"`
	RSSAfter       int64   `json:"rss_after_bytes"`
	RSSPerSession  float64 `json:"rss_per_session_bytes"`
	HeapPerSession float64 `json:"heap_and_stack_per_session_bytes"`
	CPU            cpuUse  `json:"cpu_ms_per_second"`
}

func newReport(o options) report {
	return report{CPUs: runtime.NumCPU(), Clients: o.clients}
}

func binarySizes(dir string) (map[string]int64, error) {
	sizes := map[string]int64{}
	for _, name := range []string{"ingot", "ingot-agent", "ingot-controller"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("find the binaries (make build makes them): %w", err)
		}
		sizes[name] = info.Size()
	}
	return sizes, nil
}

// print writes the table.
func (r report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(what, format string, args ...any) { fmt.Fprintf(w, what+"\t"+format+"\n", args...) }
	op := r.Operations
	row("pgbench, TPC-B-like", "%.0f tps (scale %d, %d clients)", r.Pgbench.TPS, r.Pgbench.Scale, r.Clients)
	row("operations, RPC to SUCCEEDED", "%.1f /s (%d of kind %s on %d machines, %d clients, %d failed)", op.PerSecond, op.Done, op.Kind, op.Agents, r.Clients, op.Failed)
	row("  ratio to pgbench", "%.3f", op.RatioToPgbench)
	row("  time of one under load", "p50 %.1f ms, p99 %.1f ms", op.Total.P50, op.Total.P99)
	row("  processor time of one", "%.2f ms controller, %.2f ms Postgres, %.2f ms agents and clients", op.CPU.Controller, op.CPU.Postgres, op.CPU.Agents)
	row("  transactions of one", "%.1f", op.Commits)
	row("dispatch latency, idle", "p50 %.1f ms, p99 %.1f ms (%d)", r.IdleDispatch.P50, r.IdleDispatch.P99, r.IdleDispatch.N)
	row("dispatch latency, under load", "p50 %.1f ms, p99 %.1f ms (%d)", r.LoadedDispatch.P50, r.LoadedDispatch.P99, r.LoadedDispatch.N)
	if s := r.Sessions; s.Sessions > 0 {
		row("memory per idle session", "%.1f KiB resident, of it %.1f KiB heap and stacks", s.RSSPerSession/1024, s.HeapPerSession/1024)
		row("  processor time of all", "%.0f ms controller, %.0f ms Postgres, each second", s.CPU.Controller, s.CPU.Postgres)
		row("  controller", "%.1f MiB with none, %.1f MiB with %d", float64(s.RSSBefore)/measure.MiB, float64(s.RSSAfter)/measure.MiB, s.Sessions)
	}
	row("agent, idle", "%.1f MiB resident", float64(r.AgentRSSBytes)/measure.MiB)
	for _, name := range []string{"ingot-controller", "ingot-agent", "ingot"} {
		row("binary "+name, "%.1f MiB", float64(r.Binaries[name])/measure.MiB)
	}
	row("took", "%.0f s on %d processors", r.TookSeconds, r.CPUs)
	return w.Flush()
}
