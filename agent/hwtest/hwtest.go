// Package hwtest tests a machine's memory, processors, disks and network interfaces for a bounded time. It writes to
// memory of its own and to nothing else.
package hwtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/inventory"
)

// The tests.
const (
	Memory = "memory"
	CPU    = "cpu"
	Disk   = "disk"
	NIC    = "nic"
)

// Tests are all of them, in the order in which they run.
var Tests = []string{NIC, CPU, Memory, Disk}

// Verdicts.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped"
)

// Result is what came of one test of one part.
type Result struct {
	Test string `json:"test"`
	// Part says which one: a slot, a processor, a disk's serial number, an interface.
	Part string `json:"part,omitempty"`
	// Class is what of a machine's model the figure is compared by, such as the model of a disk.
	Class   string  `json:"class,omitempty"`
	Verdict string  `json:"verdict"`
	Figure  float64 `json:"figure,omitempty"`
	Unit    string  `json:"unit,omitempty"`
	Detail  string  `json:"detail,omitempty"`
}

// Config says what to test. Root and Doc are required.
type Config struct {
	// Root is where /proc and /sys are; devices are below its /dev.
	Root string
	// Doc is what the machine is made of.
	Doc inventory.Document
	// Tests are of those above; empty: all.
	Tests []string
	// For is how long all of it may take. It is shared between the tests.
	For time.Duration
	// Share of the free memory is tested, 0 to 1.
	Share float64
	// SMART asks a disk how it is; nil: nobody can.
	SMART func(device string) (Health, error)
	// Progress is told how far it got.
	Progress func(percent int, message string)
}

// MostResults bounds a report.
const MostResults = 512

// Run tests. It ends early with ctx; what was found until then is returned.
func Run(ctx context.Context, cfg Config) []Result {
	tests := slices.DeleteFunc(slices.Clone(Tests),
		func(t string) bool { return len(cfg.Tests) > 0 && !slices.Contains(cfg.Tests, t) })
	var out []Result
	for i, name := range tests {
		if ctx.Err() != nil {
			break
		}
		if cfg.Progress != nil {
			cfg.Progress(i*100/len(tests), "testing "+name)
		}
		// What a test leaves of its time is the others'.
		part := cfg.For / time.Duration(len(tests)-i)
		began := time.Now()
		switch name {
		case NIC:
			out = append(out, nics(ctx, cfg.Root, cfg.Doc.NICs, min(part, 5*time.Second))...)
		case CPU:
			out = append(out, processors(ctx, part)...)
		case Memory:
			out = append(out, memory(ctx, cfg, part)...)
		case Disk:
			out = append(out, disks(ctx, cfg, part)...)
		}
		cfg.For -= min(cfg.For, time.Since(began))
	}
	if len(out) > MostResults {
		out = out[:MostResults]
	}
	return out
}

// Faults names the parts that have failed, in words; empty where none has.
func Faults(all []Result) string {
	var out []string
	for _, r := range all {
		if r.Verdict == Failed {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s: %s", r.Test, r.Part, r.Detail)))
		}
	}
	return strings.Join(out, "; ")
}

// percentile is the value below which a share of the sorted values lies.
func percentile[T cmp.Ordered](sorted []T, share float64) T {
	var zero T
	if len(sorted) == 0 {
		return zero
	}
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}
