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
	wg.Go(func() { _ = g.Do(0) }) // no call panics
	<-busy
	for i := 1; i <= 5; i++ {
		wg.Go(func() { _ = g.Do(i) }) // likewise
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

// TestAPanicHoldsUpNobody: all work of a call that panics hears of it, and the next call is made.
func TestAPanicHoldsUpNobody(t *testing.T) {
	t.Parallel()
	g := &batch.Group[int]{Serve: func(work []int) {
		if work[0] == 0 {
			panic("the first")
		}
	}}
	if err := g.Do(0); err == nil {
		t.Error("a panic is no error")
	}
	if err := g.Do(1); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}
