// Package headroom sets how much the garbage collector lets the heap grow, by how large it is.
//
// Go's default doubles whatever is alive. For a small heap that is little room, and work that allocates much spends a tenth
// of its time collecting; for one of many sessions it is as much memory again as the sessions need. So a small heap gets
// room, and a large one less than Go would give it.
package headroom

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// floor is the room of a small heap, in bytes.
	floor = 64 << 20
	// share is the room of a large one, in percent of what is alive.
	share = 40
	// most is the room that the smallest heap gets, in percent.
	most = 400
	// tolerance is by how much a percentage may be off, in percent of itself, before it is set anew: to set it stops the world
	// for a moment.
	tolerance = 10
	lookEvery = 2 * time.Second
)

// Percent is the garbage collection target percentage (debug.SetGCPercent) for a heap of which so many bytes are alive,
// stacks and globals among them.
func Percent(alive uint64) int {
	if alive == 0 {
		return most
	}
	return int(min(max(floor*100/alive, share), most))
}

// Keep sets the percentage again and again, until ctx ends. Where the variable GOGC is set it has been decided, and Keep does
// nothing.
func Keep(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for set := 0; ; {
		if want := Percent(alive()); off(set, want) {
			set = want
			debug.SetGCPercent(set)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func off(set, want int) bool {
	return max(set-want, want-set)*100 > tolerance*set
}

// alive is what the last collection found, as the pacer counts it (runtime/metrics).
func alive() (sum uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			sum += s.Value.Uint64()
		}
	}
	return sum
}
