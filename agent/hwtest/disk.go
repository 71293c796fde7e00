package hwtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/inventory"
	"github.com/ingot-metal/ingot/internal/task"
)

const (
	sequentialBytes = 1 << 20
	randomBytes     = 4096
	// readers at random places at the same time.
	readers = 4
	// patience is how much longer than its time a disk may take before it counts as silent.
	patience = 30 * time.Second
)

// Health is a disk's report of its own health.
type Health struct {
	// Failing is set when the disk expects to fail; Why is its own report.
	Failing bool
	Why     string
	// PercentUsed is how much of its life an NVMe disk has had; -1 is not known.
	PercentUsed int
}

// disks reads all disks at once, and writes to none.
func disks(ctx context.Context, cfg Config, d time.Duration) []Result {
	var mu sync.Mutex
	var out []Result
	group, _ := task.New(ctx) // each task gets the context as its argument
	for _, disk := range cfg.Doc.Disks {
		group.Go("disk "+disk.Name, func(ctx context.Context) error {
			r := within(ctx, d+patience, disk, func(ctx context.Context) []Result { return testDisk(ctx, cfg, disk, d) })
			mu.Lock()
			defer mu.Unlock()
			out = append(out, r...)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		out = append(out, Result{Test: Disk, Verdict: Failed, Detail: err.Error()})
	}
	slices.SortStableFunc(out, func(a, b Result) int { return strings.Compare(a.Part, b.Part) })
	return out
}

// within abandons a disk that does not answer: a read of one may never return.
func within(
	ctx context.Context, d time.Duration, disk inventory.Disk, fn func(context.Context) []Result,
) []Result {
	done := make(chan []Result, 1)
	task.Background("disk "+disk.Name, func() { done <- fn(ctx) })
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case r := <-done:
		return r
	case <-late.C:
		return []Result{result(disk, Failed, "it has not answered for "+patience.String())}
	}
}

func result(disk inventory.Disk, verdict, detail string) Result {
	part := disk.Serial
	if part == "" {
		part = disk.WWN
	}
	if part == "" {
		part = disk.Name
	}
	return Result{Test: Disk, Part: part, Class: disk.Model, Verdict: verdict, Detail: detail}
}

func testDisk(ctx context.Context, cfg Config, disk inventory.Disk, d time.Duration) []Result {
	if err := aside(); err != nil {
		return []Result{result(disk, Skipped, err.Error())}
	}
	path := filepath.Join(cfg.Root, "dev", disk.Name)
	out := health(cfg, disk, path)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) { // no direct access to a file of this file system
		f, err = os.Open(path)
	}
	if err != nil {
		return append(out, result(disk, Skipped, "open: "+err.Error()))
	}
	defer func() { _ = f.Close() }() // nothing was written to it
	size := int64(disk.SizeBytes)
	if size < sequentialBytes {
		return append(out, result(disk, Skipped, "it is too small"))
	}
	for _, t := range []struct {
		unit string
		read func(ctx context.Context, f *os.File, size, most int64) (float64, string, error)
	}{{"MB/s", sequential}, {"IOPS", random}} {
		ctx, cancel := context.WithTimeout(ctx, d/2)
		figure, detail, err := t.read(ctx, f, size, cfg.DiskBytes/2)
		cancel()
		r := result(disk, Passed, detail)
		r.Figure, r.Unit = figure, t.unit
		if err != nil {
			r.Verdict, r.Detail = Failed, err.Error()
		}
		out = append(out, r)
	}
	return out
}

func health(cfg Config, disk inventory.Disk, path string) []Result {
	if cfg.SMART == nil {
		return nil
	}
	h, err := cfg.SMART(path)
	if err != nil {
		return []Result{result(disk, Skipped, "SMART: "+err.Error())}
	}
	r := result(disk, Passed, "SMART: "+h.Why)
	if h.Failing {
		r.Verdict = Failed
	}
	if h.PercentUsed >= 0 {
		r.Figure, r.Unit = float64(h.PercentUsed), "% used"
	}
	return []Result{r}
}

// buffer is aligned to a page, as direct access wants it.
func buffer(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("take memory: %w", err)
	}
	return b, nil
}

// sequential reads from a random place on, around the end to the start, for the time that it has.
func sequential(ctx context.Context, f *os.File, size, most int64) (mbs float64, detail string, err error) {
	b, err := buffer(sequentialBytes)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, unix.Munmap(b)) }()
	blocks := size / sequentialBytes
	at, n, began := rand.Int64N(blocks), int64(0), time.Now()
	for ; ctx.Err() == nil && n < blocks && n*sequentialBytes < most; n++ {
		if _, err := f.ReadAt(b, at*sequentialBytes); err != nil {
			return 0, "", fmt.Errorf("read at byte %d: %w", at*sequentialBytes, err)
		}
		at = (at + 1) % blocks
	}
	return rate(n*sequentialBytes, began) / 1e6, fmt.Sprintf("%d MiB read in a row", n*sequentialBytes>>20), nil
}

// random reads at random places, several at a time, and returns how long the slowest hundredth took.
func random(ctx context.Context, f *os.File, size, most int64) (iops float64, detail string, err error) {
	var mu sync.Mutex
	var took []time.Duration
	group, _ := task.New(ctx) // each task gets the context as its argument
	began := time.Now()
	for range readers {
		group.Go("reader", func(ctx context.Context) error {
			if err := aside(); err != nil {
				return err
			}
			mine, err := randomReads(ctx, f, size, most/readers)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
			return err
		})
	}
	err = group.Wait()
	slices.Sort(took)
	return rate(int64(len(took)), began), fmt.Sprintf("4 KiB at random places, 99 %% within %v",
		percentile(took, 0.99).Round(time.Microsecond)), err
}

// mostReads bounds how many reads of one reader are remembered.
const mostReads = 1 << 20

func randomReads(ctx context.Context, f *os.File, size, most int64) (took []time.Duration, err error) {
	b, err := buffer(randomBytes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.Munmap(b)) }()
	for ctx.Err() == nil && len(took) < mostReads && int64(len(took))*randomBytes < most {
		at := rand.Int64N(size/randomBytes) * randomBytes
		began := time.Now()
		if _, err := f.ReadAt(b, at); err != nil {
			return took, fmt.Errorf("read at byte %d: %w", at, err)
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

func rate(n int64, began time.Time) float64 {
	return float64(n) / max(time.Since(began).Seconds(), 1e-9)
}
