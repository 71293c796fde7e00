package hwtest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/inventory"
)

// counters are those that a bad cable or card moves (kernel, Documentation/networking/statistics.rst).
var counters = []string{"rx_crc_errors", "rx_frame_errors", "rx_errors", "tx_errors", "tx_carrier_errors"}

// nics looks at links and speeds, and whether errors are counted meanwhile.
func nics(ctx context.Context, root string, all []inventory.NIC, d time.Duration) []Result {
	before := make([]map[string]uint64, len(all))
	for i, n := range all {
		before[i] = errorsOf(root, n.Name)
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	out := make([]Result, 0, len(all))
	for i, n := range all {
		out = append(out, judgeNIC(asNow(root, n), before[i], errorsOf(root, n.Name)))
	}
	return out
}

// asNow reads link and speed anew: the inventory may have been made before a cable was plugged.
func asNow(root string, n inventory.NIC) inventory.NIC {
	dir := filepath.Join(root, "sys/class/net", n.Name)
	if carrier, ok := number(filepath.Join(dir, "carrier")); ok {
		n.LinkUp = carrier == 1
	}
	if speed, ok := number(filepath.Join(dir, "speed")); ok {
		n.SpeedMbps = int(speed)
	}
	return n
}

func judgeNIC(n inventory.NIC, before, after map[string]uint64) Result {
	r := Result{
		Test:    NIC,
		Part:    n.Name + " " + n.MAC,
		Class:   strings.TrimSpace(n.Driver + " " + n.Name),
		Verdict: Passed,
		Unit:    "Mbit/s",
		Figure:  float64(n.SpeedMbps),
	}
	if !n.LinkUp {
		r.Verdict, r.Detail, r.Figure = Skipped, "no link", 0
		return r
	}
	for _, c := range counters {
		if grew := after[c] - before[c]; after[c] > before[c] {
			r.Verdict, r.Detail = Failed, fmt.Sprintf("%s grew by %d", c, grew)
			return r
		}
	}
	if r.Detail = "link"; n.SpeedMbps > 0 {
		r.Detail = "link of " + strconv.Itoa(n.SpeedMbps) + " Mbit/s"
	}
	return r
}

func errorsOf(root, name string) map[string]uint64 {
	out := map[string]uint64{}
	for _, c := range slices.Clone(counters) {
		if n, ok := number(filepath.Join(root, "sys/class/net", name, "statistics", c)); ok {
			out[c] = n
		}
	}
	return out
}
