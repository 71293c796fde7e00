package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// report is everything that was measured. Durations are in milliseconds, sizes in bytes.
type report struct {
	CPUs       int           `json:"cpus"`
	Pgbench    pgbenchResult `json:"pgbench"`
	Operations []throughput  `json:"operations"`
	// BehindSite are reboots of machines behind one site agent.
	BehindSite []throughput `json:"behind_site"`
	// Filled is the last of them again, with many machines in the database.
	Filled        throughput       `json:"operations_filled"`
	IdleDispatch  measure.Latency  `json:"dispatch_idle"`
	Sessions      sessionMemory    `json:"idle_sessions"`
	AgentRSSBytes int64            `json:"agent_rss_bytes"`
	Binaries      map[string]int64 `json:"binary_bytes"`
	TookSeconds   float64          `json:"took_seconds"`
}

type pgbenchResult struct {
	Scale int `json:"scale"`
	// TPS by number of clients.
	TPS map[int]float64 `json:"tps"`
}

// throughput is about operations from the RPC to SUCCEEDED.
type throughput struct {
	Kind           string          `json:"kind"`
	Clients        int             `json:"clients"`
	Fill           int             `json:"machines_besides,omitempty"`
	PerSecond      float64         `json:"per_second"`
	Rounds         int             `json:"rounds,omitempty"` // of which this is the median
	Least          float64         `json:"least_per_second,omitempty"`
	Most           float64         `json:"most_per_second,omitempty"`
	RatioToPgbench float64         `json:"ratio_to_pgbench"`
	Done           int             `json:"done"`
	Failed         int             `json:"failed"`
	Agents         int             `json:"agents"`
	Total          measure.Latency `json:"rpc_to_succeeded"`
	Dispatch       measure.Latency `json:"dispatch"`
	CPU            benchrig.CPUUse `json:"cpu_ms_per_operation"`
	Commits        float64         `json:"commits_per_operation"`
}

// sessionMemory is what sessions cost the controller.
type sessionMemory struct {
	Sessions       int             `json:"sessions"`
	RSSBefore      int64           `json:"rss_before_bytes"`
	RSSAfter       int64           `json:"rss_after_bytes"`
	RSSPerSession  float64         `json:"rss_per_session_bytes"`
	HeapPerSession float64         `json:"heap_and_stack_per_session_bytes"`
	CPU            benchrig.CPUUse `json:"cpu_ms_per_second"`
}

func newReport() report {
	return report{CPUs: runtime.NumCPU()}
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

// wantedRatio is the aim for operations a second, of pgbench's transactions a second.
const wantedRatio = 0.25

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}

// compare sets the ratio to what pgbench reached.
func (t *throughput) compare(tps float64) { t.RatioToPgbench = t.PerSecond / tps }

// best is the throughput with the highest ratio.
func (r report) best() throughput {
	return slices.MaxFunc(r.Operations,
		func(a, b throughput) int { return cmp.Compare(a.RatioToPgbench, b.RatioToPgbench) })
}

func (t *throughput) print(row func(what, format string, args ...any)) {
	what := fmt.Sprintf("%d clients: operations, RPC to SUCCEEDED", t.Clients)
	if t.Fill > 0 {
		what = fmt.Sprintf("%d clients, %d machines: operations", t.Clients, t.Fill)
	}
	row(what, "%.1f /s (%d of kind %s on %d machines, %d failed)", t.PerSecond, t.Done, t.Kind, t.Agents, t.Failed)
	if t.Rounds > 0 {
		row("  of so many runs the median", "%d: %.1f to %.1f /s", t.Rounds, t.Least, t.Most)
	}
	row("  of pgbench", "%.3f: %s (%.2f)", t.RatioToPgbench, verdict(t.RatioToPgbench >= wantedRatio), wantedRatio)
	row("  time of one", "p50 %.1f ms, p99 %.1f ms; until its agent has it p50 %.1f ms, p99 %.1f ms", t.Total.P50,
		t.Total.P99, t.Dispatch.P50, t.Dispatch.P99)
	all := t.CPU.Sum()
	row("  processor time of one", "%.2f ms: %.2f controller, %.2f Postgres, %.2f agents and clients", all,
		t.CPU.Controller, t.CPU.Postgres, t.CPU.Own)
	row("  transactions of one", "%.2f", t.Commits)
}

// print writes the table.
func (r report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(what, format string, args ...any) { fmt.Fprintf(w, what+"\t"+format+"\n", args...) }
	for _, op := range r.BehindSite {
		op.printBehindSite(row)
	}
	for _, op := range r.Operations {
		row(fmt.Sprintf("%d clients: pgbench, TPC-B-like", op.Clients), "%.0f tps (scale %d)", r.Pgbench.TPS[op.Clients],
			r.Pgbench.Scale)
		op.print(row)
	}
	if op := r.Filled; op.Done > 0 {
		op.print(row)
		few := r.Operations[len(r.Operations)-1].PerSecond
		row("  beside few machines", "%.2f of it: %s (0.90)", op.PerSecond/few, verdict(op.PerSecond >= 0.9*few))
	}
	if len(r.Operations) > 0 {
		r.printWithAgents(row)
	}
	for _, name := range []string{"ingot-controller", "ingot-agent", "ingot"} {
		row("binary "+name, "%.1f MiB", float64(r.Binaries[name])/measure.MiB)
	}
	row("took", "%.0f s on %d processors", r.TookSeconds, r.CPUs)
	return w.Flush()
}

func (r report) printWithAgents(row func(what, format string, args ...any)) {
	best := r.best()
	row("operations of pgbench's tps, best", "%.3f with %d clients: %s (%.2f)", best.RatioToPgbench, best.Clients,
		verdict(best.RatioToPgbench >= wantedRatio), wantedRatio)
	idle := r.IdleDispatch
	row("dispatch latency, idle", "p50 %.1f ms: %s (8), p99 %.1f ms: %s (30); %d operations", idle.P50,
		verdict(idle.P50 <= 8), idle.P99, verdict(idle.P99 <= 30), idle.N)
	if s := r.Sessions; s.Sessions > 0 {
		row("memory per idle session", "%.1f KiB resident, of it %.1f KiB heap and stacks", s.RSSPerSession/1024,
			s.HeapPerSession/1024)
		row("  processor time of all", "%.0f ms controller, %.0f ms Postgres, each second", s.CPU.Controller, s.CPU.Postgres)
		row("  controller", "%.1f MiB with none, %.1f MiB with %d", float64(s.RSSBefore)/measure.MiB,
			float64(s.RSSAfter)/measure.MiB, s.Sessions)
	}
	row("agent, idle", "%.1f MiB resident", float64(r.AgentRSSBytes)/measure.MiB)
}
