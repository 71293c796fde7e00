package machine

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// order is what the database has of changes: each machine at the place of its last one.
type order struct {
	mu    sync.Mutex
	all   []machinestore.Change
	xid   uint64
	reads int
}

func cursorOf(xid uint64, machine string) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"v":1,"x":"%d","m":%q}`, xid, machine))
}

// change changes some machines by one transaction.
func (o *order) change(ids ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.xid++
	o.all = slices.DeleteFunc(o.all, func(c machinestore.Change) bool {
		return slices.Contains(ids, c.Machine.GetMachineId())
	})
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		o.all = append(o.all, machinestore.Change{Machine: &baremetalv1.Machine{MachineId: id, Version: int64(o.xid)},
			Xid: o.xid, Cursor: cursorOf(o.xid, id)})
	}
}

func (o *order) read(_ context.Context, from string, limit int32) ([]machinestore.Change, string, bool, error) {
	at, err := machinestore.SpotOf(from)
	if err != nil {
		return nil, "", false, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads++
	i := slices.IndexFunc(o.all, func(c machinestore.Change) bool {
		return c.Xid > at.Xid || c.Xid == at.Xid && strings.Compare(c.Machine.GetMachineId(), at.Machine) > 0
	})
	if i < 0 {
		return nil, from, false, nil
	}
	page := slices.Clone(o.all[i:min(i+int(limit), len(o.all))])
	return page, page[len(page)-1].Cursor, len(page) == int(limit), nil
}

// Every follower has in the end the last version of each machine, wherever and whenever it has begun.
func TestWatchesThatShareReadsMissNothing(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := &order{}
		f := &feed{read: o.read, clock: clock.Real()}
		change := func() {
			var ids []string
			for range 1 + rnd.IntN(4) {
				ids = append(ids, fmt.Sprint("m-", rnd.IntN(12)))
			}
			o.change(ids...)
		}
		g, ctx := task.New(t.Context())
		over := make(chan struct{})
		for w := range 8 {
			change()
			begin := cursorOf(rnd.Uint64N(o.xid+1), "")
			g.Go("watch", func(context.Context) error {
				have := map[string]int64{}
				at, last := begin, false
				for {
					select {
					case <-over:
						last = true
					default:
					}
					page, next, more, err := f.after(ctx, at, int32(1+w))
					if err != nil {
						return err
					}
					for _, c := range page {
						if v := c.Machine.GetVersion(); v < have[c.Machine.GetMachineId()] {
							return fmt.Errorf("%s went back to %d", c.Machine.GetMachineId(), v)
						}
						have[c.Machine.GetMachineId()] = c.Machine.GetVersion()
					}
					if at = next; last && !more && len(page) == 0 {
						break
					}
				}
				from, err := machinestore.SpotOf(begin)
				if err != nil {
					return err
				}
				for _, c := range o.all { // it is no longer changed
					if id := c.Machine.GetMachineId(); c.Xid > from.Xid && have[id] != c.Machine.GetVersion() {
						return fmt.Errorf("watch %d of seed %d has %s in version %d of %d", w, seed, id, have[id], c.Machine.GetVersion())
					}
				}
				return nil
			})
		}
		for range 400 {
			change()
		}
		// A read that is shared may be a little older than the last change.
		clockPassed(f)
		close(over)
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// clockPassed has the next question be newer than every read so far.
func clockPassed(f *feed) { <-f.clock.After(2 * sharedFor) }

// A hundred watches at one place ask the database about as often as one.
func TestWatchesAtOnePlaceReadOnce(t *testing.T) {
	o := &order{}
	o.change("m-1")
	f := &feed{read: o.read, clock: clock.Real()}
	at := cursorOf(1, "m-1")
	o.change("m-2")
	for range 100 {
		page, _, _, err := f.after(t.Context(), at, 100)
		if err != nil || len(page) != 1 || page[0].Machine.GetMachineId() != "m-2" {
			t.Fatalf("%v, %v", page, err)
		}
	}
	if o.reads != 1 {
		t.Errorf("%d reads", o.reads)
	}
}

// A page that is full is followed by the next at once: a fleet may change faster than a page each time that a watch
// looks.
func TestAFullPageIsFollowedAtOnce(t *testing.T) {
	o := &order{}
	o.change("m-0")
	f := &feed{read: o.read, clock: clock.Real()}
	at := cursorOf(1, "m-0")
	for i := range 10 {
		o.change(fmt.Sprint("m-", i+1))
	}
	got := 0
	for more := true; more; {
		page, next, again, err := f.after(t.Context(), at, 3)
		if err != nil {
			t.Fatal(err)
		}
		got += len(page)
		at, more = next, again
	}
	if got != 10 {
		t.Errorf("%d of 10 changes before the first wait", got)
	}
}

// Where the newest place that is shared can be gone on from no more, a watch at another place does not hear of it.
func TestASharedPlaceThatHasExpiredIsNobodyElses(t *testing.T) {
	o := &order{}
	o.change("m-1")
	o.change("m-2")
	f := &feed{read: o.read, clock: clock.Real()}
	if _, _, _, err := f.after(t.Context(), cursorOf(1, "m-1"), 100); err != nil {
		t.Fatal(err)
	}
	expired := errors.New("expired")
	f.read = func(ctx context.Context, from string, limit int32) ([]machinestore.Change, string, bool, error) {
		if from == cursorOf(2, "m-2") {
			return nil, "", false, expired
		}
		return o.read(ctx, from, limit)
	}
	clockPassed(f)
	if _, next, _, err := f.after(t.Context(), cursorOf(3, "m-3"), 100); err != nil || next != cursorOf(3, "m-3") {
		t.Errorf("at another place: %q, %v", next, err)
	}
	if _, _, _, err := f.after(t.Context(), cursorOf(2, "m-2"), 100); !errors.Is(err, expired) {
		t.Errorf("at the place itself: %v", err)
	}
}
