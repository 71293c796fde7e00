package batch_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/batch"
)

// TestGroup: what comes while a call is under way is served by the next one, in its order.
func TestGroup(t *testing.T) {
	t.Parallel()
	busy, free := make(chan struct{}), make(chan struct{})
	var calls [][]int
	g := &batch.Group[int]{Most: 3, Serve: func(work []int) {
		if calls = append(calls, work); len(calls) == 1 {
			close(busy)
			<-free
		}
	}}
	var wg sync.WaitGroup
	wg.Go(func() { g.Do(0) })
	<-busy
	for i := 1; i <= 5; i++ {
		wg.Go(func() { g.Do(i) })
		for g.Waiting() < i {
			<-time.After(time.Millisecond)
		}
	}
	close(free)
	wg.Wait()
	if want := [][]int{{0}, {1, 2, 3}, {4, 5}}; !slices.EqualFunc(calls, want, slices.Equal[[]int]) {
		t.Errorf("called with %v", calls)
	}
}
