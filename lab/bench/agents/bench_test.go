package agents

import (
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/lab/bench/rig"
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

func TestAFigureOfThroughputHoldsEveryNumber(t *testing.T) {
	text := throughput{
		load: &load{total: make([]time.Duration, 710), failed: 10}, machines: 200, rounds: "median of 5 runs, 20 to 40 /s: ",
		total: measure.Latency{P50: 42, P99: 84}, dispatch: measure.Latency{P50: 7, P99: 9, N: 700},
		use: rig.Usage{Controllers: 2.5, Postgres: 3.5, Clients: 1.25, Commits: 2.27},
	}.String()
	for _, want := range []string{"5 runs, 20 to 40 /s", "42 ms (p99 84)", "2.27 transactions", "7.25 ms", "Postgres 3.50",
		"7 ms (p99 9)", "710 done on 200 machines, 10 failed"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}
