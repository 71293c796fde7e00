package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/lab/measure"
)

func TestParseTPS(t *testing.T) {
	for out, want := range map[string]float64{
		"latency average = 1.9 ms\ntps = 4193.123456 (without initial connection time)\n":                    4193.123456,
		"tps = 80.0 (including connections establishing)\ntps = 81.5 (excluding connections establishing)\n": 81.5,
	} {
		if got, err := parseTPS(out); err != nil || got != want {
			t.Errorf("parseTPS(%q) = %v, %v, want %v", out, got, err, want)
		}
	}
	if got, err := parseTPS("pgbench: error: connection failed"); err == nil {
		t.Errorf("read %v tps from an error", got)
	}
}

func TestNumbersOfClients(t *testing.T) {
	var c counts
	if err := c.Set("8,32"); err != nil || c.String() != "8,32" {
		t.Errorf("%v, %v", c, err)
	}
	for _, wrong := range []string{"", "8,", "x", "0"} {
		if err := c.Set(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestReportHoldsEveryNumber(t *testing.T) {
	r := newReport()
	r.Pgbench = pgbenchResult{TPS: map[int]float64{8: 4000, 32: 200}, Scale: 10}
	for _, clients := range []int{8, 32} {
		op := (&loadResult{took: 10 * time.Second, done: 710, failed: 10, machines: 200}).report()
		op.Clients = clients
		op.compare(r.Pgbench.TPS[clients])
		r.Operations = append(r.Operations, op)
	}
	r.Filled = median([]throughput{{PerSecond: 40}, {Done: 1, Clients: 32, Fill: 5000, PerSecond: 35}, {PerSecond: 20}})
	r.Sessions = sessionMemory{Sessions: 2000, RSSPerSession: 100 * 1024}
	r.Binaries = map[string]int64{"ingot": 13 * measure.MiB}
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"4000 tps", "70.0 /s", "10 failed", "0.018: missed", "0.350 with 32 clients: met",
		"0.50 of it: missed", "3: 20.0 to 40.0 /s", "100.0 KiB", "13.0 MiB"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
