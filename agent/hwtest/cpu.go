package hwtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/task"
)

// rounds is how often a hash is hashed before it is compared.
const rounds = 20_000

// answer is the hash of 32 zero bytes, hashed rounds times in all.
const answer = "be284ef82cb4cc7387570bda86289eeecd04b4fa69d53bf3101136c198955fea"

// processors lets every processor compute the same for a time. One that finds another answer is broken.
func processors(ctx context.Context, d time.Duration) []Result {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return []Result{{Test: CPU, Verdict: Skipped, Detail: "which processors there are: " + err.Error()}}
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var mu sync.Mutex
	var out []Result
	done, began := 0, time.Now()
	group, _ := task.New(ctx) // each task gets the context as its argument
	for n := range 8192 {
		if !set.IsSet(n) {
			continue
		}
		group.Go("cpu "+strconv.Itoa(n), func(ctx context.Context) error {
			rounds, wrong, err := stress(ctx, n)
			mu.Lock()
			defer mu.Unlock()
			done += rounds
			switch {
			case err != nil:
				out = append(out, Result{Test: CPU, Part: "cpu" + strconv.Itoa(n), Verdict: Skipped, Detail: err.Error()})
			case wrong != "":
				out = append(out, Result{Test: CPU, Part: "cpu" + strconv.Itoa(n), Verdict: Failed, Detail: wrong})
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		out = append(out, Result{Test: CPU, Verdict: Failed, Detail: err.Error()})
	}
	sum := Result{Test: CPU, Verdict: Passed, Unit: "MHash/s",
		Figure: float64(done) * rounds / time.Since(began).Seconds() / 1e6, Detail: fmt.Sprintf("%d processors", set.Count())}
	return append([]Result{sum}, out...)
}

// stress computes on one processor. Its thread is given the lowest priority, and ends with it.
func stress(ctx context.Context, cpu int) (n int, wrong string, err error) {
	if err := aside(); err != nil {
		return 0, "", err
	}
	var only unix.CPUSet
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return 0, "", fmt.Errorf("not to be run on: %w", err)
	}
	for ctx.Err() == nil {
		if got := chain(); got != answer {
			return n, "it computes " + got[:16] + "…, and not " + answer[:16] + "…", nil
		}
		n++
	}
	return n, "", nil
}

func chain() string {
	var h [sha256.Size]byte
	for range rounds {
		h = sha256.Sum256(h[:])
	}
	return fmt.Sprintf("%x", h)
}
