// Package hwtest tests a machine's memory, processors, disks and network interfaces for a bounded time. It writes to
// memory of its own and to nothing else.
package hwtest

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/inventory"
	"github.com/ingot-metal/ingot/internal/evidence"
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
	Passed  = evidence.HardwarePassed
	Failed  = evidence.HardwareFailed
	Skipped = evidence.HardwareSkipped
)

// Result is what came of one test of one part.
type Result = evidence.HardwareResult

// Config is the order of a test. Root and Doc are required.
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
	// DiskBytes is how much is read of each disk, to the next MiB.
	DiskBytes int64
	// SMART reads a disk's health; nil: it cannot be read.
	SMART func(device string) (Health, error)
	// Progress receives the percentage done, 0 to 100, and the part under test; it may be nil.
	Progress func(percent int, message string)
}

// Wants reports whether a test was asked for.
func (c Config) Wants(test string) bool { return len(c.Tests) == 0 || slices.Contains(c.Tests, test) }

// MostResults bounds a report.
const MostResults = 256

// Run tests. It ends early with ctx; what was found until then is returned.
func Run(ctx context.Context, cfg Config) []Result {
	tests := slices.DeleteFunc(slices.Clone(Tests), func(t string) bool { return !cfg.Wants(t) })
	var out []Result
	// The tests take every processor that the scheduler has: one more is for what the agent does beside them.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 1))
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
	return bounded(out)
}

// bounded drops the results that exceed a report: never a failure before a success.
func bounded(all []Result) []Result {
	for i := range all {
		all[i].Detail = short(all[i].Detail)
	}
	if len(all) <= MostResults {
		return all
	}
	grave := map[string]int{Failed: 0, Skipped: 1, Passed: 2}
	slices.SortStableFunc(all, func(a, b Result) int { return grave[a.Verdict] - grave[b.Verdict] })
	return all[:MostResults]
}

// short truncates a driver's text of an error.
func short(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// aside makes the calling goroutine's thread one of the lowest priority, for computing and for reading. The thread ends
// with the goroutine.
func aside() error {
	runtime.LockOSThread() // never unlocked: the thread is of no other use
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19); err != nil {
		return fmt.Errorf("lower its priority: %w", err)
	}
	const whoProcess, bestEffort, lowest = 1, 2 << 13, 7 // linux/ioprio.h
	if _, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, 0, bestEffort|lowest); errno != 0 {
		return fmt.Errorf("lower its priority of reading: %w", errno)
	}
	return nil
}

// mostFaultsNamed is how many faults are named in words.
const mostFaultsNamed = 8

// Faults names the parts that have failed, in words; empty where none has.
func Faults(all []Result) string {
	var out []string
	for _, r := range all {
		if r.Verdict == Failed {
			out = append(out, strings.Join(strings.Fields(r.Test+" "+r.Part), " ")+": "+r.Detail)
		}
	}
	if more := len(out) - mostFaultsNamed; more > 0 {
		out = append(out[:mostFaultsNamed], fmt.Sprintf("and %d more", more))
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

// Report is all that was found on a machine.
type Report struct {
	// Model of the machine, by which its figures are compared.
	Model   string
	Results []Result
}

// ModelOf names the maker and the model of a machine; empty where the firmware has neither.
func ModelOf(doc inventory.Document) string {
	return strings.TrimSpace(doc.System.Vendor + " " + doc.System.Product)
}
