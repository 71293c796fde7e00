// Package gctune sets how much the garbage collector lets the heap grow, by its size and its rate of allocation.
//
// Go's default doubles whatever is alive. For a small heap that is little room, and work that allocates much spends a
// tenth of its time collecting. For a heap of many sessions it is as much memory again as the sessions need. So a small
// heap gets room, and a large one gets less than Go's default. The large one gets a share of its size while much is
// allocated, and hardly any while little is.
package gctune

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// floor is the room of a small heap, in bytes.
	floor = 24 << 20
	// share is the room of a large one that is busy, and least of one that is not, in percent of the live bytes.
	share, least = 40, 10
	// between is the time from one collection to the next that a large heap gets room for, in seconds.
	between = 15
	// most is the room that the smallest heap gets, in percent.
	most = 400
	// tolerance is by how much a percentage may be off, in percent of itself, before it is set anew: to set it stops the
	// world for a moment.
	tolerance = 15
	lookEvery = 2 * time.Second
	// calm is the part of the remembered rate that is kept at each look, in percent: work comes in waves.
	calm = 80
)

// Percent returns the garbage collection target percentage (debug.SetGCPercent). alive is the heap's live bytes, stacks
// and globals included, and perSecond the bytes that are allocated in a second.
func Percent(alive, perSecond uint64) int {
	if alive == 0 {
		return most
	}
	busy := min(max(perSecond*between*100/alive, least), share)
	return int(min(max(floor*100/alive, busy), most))
}

// Keep sets the percentage again and again, until ctx ends. Where the variable GOGC is set it has been decided, and
// Keep does nothing.
func Keep(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	collected := make(chan struct{}, 1)
	onCollection(ctx, collected)
	var rate, before uint64
	for set, timed := 0, true; ; {
		alive, allocated := look()
		if timed {
			rate = max((allocated-before)*uint64(time.Second)/uint64(lookEvery), rate*calm/100)
			before = allocated
		}
		if want := Percent(alive, rate); off(set, want) {
			set = want
			debug.SetGCPercent(set)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			timed = true
		case <-collected:
			// A heap that has grown in between must not have the room of the small one that it was, in percent.
			timed = false
		}
	}
}

// sentinel is garbage that each collection finds. It holds a pointer, so that it is not allocated together with others.
type sentinel struct{ _ *byte }

// onCollection sends after each collection of garbage, until ctx ends.
func onCollection(ctx context.Context, collected chan<- struct{}) {
	runtime.SetFinalizer(&sentinel{}, func(*sentinel) {
		select {
		case collected <- struct{}{}:
		default: // one is waiting to be taken
		}
		if ctx.Err() == nil {
			onCollection(ctx, collected)
		}
	})
}

const (
	// frugal is the percentage of a process that has little to do and shares a machine with others' work.
	frugal = 40
	// settled is when such a process has begun, and may give back what that took.
	settled = 10 * time.Second
)

// Frugal is Keep for a process that mostly waits: it trades processor time, of which that uses next to none, for
// memory.
func Frugal(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	debug.SetGCPercent(frugal)
	select {
	case <-ctx.Done():
	case <-time.After(settled):
		debug.FreeOSMemory()
		_ = giveBackProgram() // where a process may not see its own map, it keeps what it has
	}
	return nil
}

func off(set, want int) bool {
	return max(set-want, want-set)*100 > tolerance*set
}

// look returns the bytes that the last collection found alive, as the pacer counts them, and those that were ever
// allocated (runtime/metrics).
func look() (alive, allocated uint64) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(samples)
	for i, s := range samples {
		switch {
		case s.Value.Kind() != metrics.KindUint64:
		case i == 0:
			allocated = s.Value.Uint64()
		default:
			alive += s.Value.Uint64()
		}
	}
	return alive, allocated
}
