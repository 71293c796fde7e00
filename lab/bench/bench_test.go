package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"
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

func TestParseRSS(t *testing.T) {
	got, err := parseRSS("Name:\tagent\nVmHWM:\t  30000 kB\nVmRSS:\t   21504 kB\nThreads:\t9\n")
	if err != nil || got != 21504*1024 {
		t.Errorf("got %d, %v", got, err)
	}
	if got, err := parseRSS("Name:\tkthreadd\n"); err == nil {
		t.Errorf("read %d from a process without memory", got)
	}
}

func TestParseStat(t *testing.T) {
	const stat = "4711 (post gres) (x)) S 4242 4711 4711 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 1 0 123 456 789"
	parent, used, err := parseStat(stat)
	if err != nil || parent != 4242 || used != 2*time.Second {
		t.Errorf("got parent %d, %v, %v", parent, used, err)
	}
	if _, _, err := parseStat("4711 (cut"); err == nil {
		t.Error("a line that was cut short was read")
	}
}

func TestMetric(t *testing.T) {
	const text = "# TYPE go_x gauge\ngo_x_total 1\ngo_x 4.096e+06\n"
	if got, err := metric(text, "go_x"); err != nil || got != 4096000 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := metric(text, "go_y"); err == nil {
		t.Errorf("read %v from a metric that is not there", got)
	}
}

func TestPercentiles(t *testing.T) {
	var values []time.Duration
	for i := 200; i > 0; i-- {
		values = append(values, time.Duration(i)*time.Millisecond)
	}
	if got := percentiles(values); got.P50 != 101 || got.P99 != 199 || got.N != 200 {
		t.Errorf("got %+v", got)
	}
	if got := percentiles([]time.Duration{3 * time.Millisecond}); got.P50 != 3 || got.P99 != 3 {
		t.Errorf("of one: %+v", got)
	}
	if got := percentiles(nil); got != (latency{}) {
		t.Errorf("of none: %+v", got)
	}
}

func TestReceiptsKeepTheFirstTime(t *testing.T) {
	r := newReceipts()
	log := slog.New(r).With("agent_id", "a-1")
	before := time.Now()
	log.Info(receiptLine, "command_id", "cmd-1", "operation_id", "op-1")
	log.Info("something else", "operation_id", "op-2")
	first, ok := r.take("op-1")
	if !ok || first.Before(before) {
		t.Errorf("got %v, %t", first, ok)
	}
	for _, id := range []string{"op-1", "op-2"} {
		if at, ok := r.take(id); ok {
			t.Errorf("%s: a receipt at %v", id, at)
		}
	}
}

func TestReportHoldsEveryNumber(t *testing.T) {
	r := newReport(options{clients: 8})
	r.Pgbench = pgbenchResult{TPS: 4000, Scale: 10}
	r.Operations = (&loadResult{took: 10 * time.Second, done: 710, failed: 10, machines: 200}).report(r.Pgbench.TPS)
	r.Sessions = sessionMemory{Sessions: 2000, RSSPerSession: 100 * 1024}
	r.Binaries = map[string]int64{"ingot": 13 * mib}
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"4000 tps", "70.0 /s", "10 failed", "0.018", "100.0 KiB", "13.0 MiB"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
