package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/agent/session"
	"github.com/ingot-metal/ingot/agent/state"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
)

type store interface {
	dispatch.Store
	session.Store
}

// The memory of the fleet answers as the agent's database does, whatever is asked of the two in whatever order.
func TestMemoryIsLikeTheDatabase(t *testing.T) {
	t.Parallel()
	database, err := state.Open(t.Context(), state.Config{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	both := [2]store{database, newMemory()}
	now := time.UnixMilli(1_700_000_000_000).UTC()
	for i := range 3000 {
		now = now.Add(time.Duration(rnd.IntN(3600_000)) * time.Millisecond)
		kind, id, k := rnd.IntN(len(asks)), fmt.Sprintf("cmd-%02d", rnd.IntN(30)), rnd.Uint64N(200)
		var got [2]string
		for j, s := range both {
			got[j] = asks[kind](t.Context(), s, id, k, now)
		}
		if got[0] != got[1] {
			t.Fatalf("seed %d, ask %d of kind %d (%s, %d): the database says %s, the memory %s", seed, i, kind, id, k, got[0],
				got[1])
		}
	}
	database.Fence()
	fenced := both[1].(*memory)
	fenced.reopen()
	for _, s := range both {
		if _, err := s.Meta(t.Context()); !errors.Is(err, state.ErrFenced) {
			t.Errorf("%T after its end: %v", s, err)
		}
	}
}

// told is an answer in a form that compares.
func told(err error, values ...any) string {
	known := ""
	for _, e := range []error{state.ErrConflict, state.ErrFenced, state.ErrStorageFull} {
		if errors.Is(err, e) {
			known = e.Error()
		}
	}
	if err != nil && known == "" {
		known = "another error: " + err.Error()
	}
	return fmt.Sprintf("%q %s", values, known)
}

func describe(list ...state.Command) []string {
	var out []string
	for _, c := range list {
		out = append(out, fmt.Sprintf("%s %s %s %q %q %v %v %v %v", c.ID, c.TargetID, c.State, c.Intent, c.Result,
			c.ReceivedAt.UnixMilli(), c.StartedAt.IsZero(), c.DoneAt.IsZero(), c.Settled))
	}
	return out
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

var asks = []func(ctx context.Context, s store, id string, k uint64, now time.Time) string{
	func(ctx context.Context, s store, id string, _ uint64, now time.Time) string {
		c, known, err := s.Receive(ctx, state.Command{ID: id, TargetID: "m", Spec: []byte("spec"), Digest: []byte("d"),
			ReceivedAt: now})
		return told(err, describe(c), known)
	},
	func(ctx context.Context, s store, id string, _ uint64, now time.Time) string {
		return told(s.Start(ctx, id, []byte("{}"), nil, now))
	},
	func(ctx context.Context, s store, id string, _ uint64, _ time.Time) string {
		return told(s.Unstart(ctx, id))
	},
	func(ctx context.Context, s store, id string, _ uint64, _ time.Time) string {
		return told(s.UpdateIntent(ctx, id, []byte("{1}")))
	},
	func(ctx context.Context, s store, id string, k uint64, now time.Time) string {
		return told(s.Finish(ctx, id, fmt.Append(nil, k), now))
	},
	func(ctx context.Context, s store, id string, _ uint64, _ time.Time) string {
		return told(s.Settle(ctx, id))
	},
	func(ctx context.Context, s store, _ string, _ uint64, _ time.Time) string {
		list, err := s.Unsettled(ctx)
		return told(err, sorted(describe(list...)))
	},
	func(ctx context.Context, s store, _ string, _ uint64, now time.Time) string {
		n, err := s.Evict(ctx, now)
		return told(err, n)
	},
	func(ctx context.Context, s store, _ string, _ uint64, _ time.Time) string {
		_, err := s.NextGrantSeqs(ctx, "any") // numbers differ
		return told(err)
	},
	func(ctx context.Context, s store, _ string, k uint64, now time.Time) string {
		return told(s.SawControllerTime(ctx, now.Add(-time.Duration(k)*time.Hour)))
	},
	func(ctx context.Context, s store, _ string, _ uint64, _ time.Time) string {
		m, err := s.Meta(ctx)
		m.StateID, m.LastGrantSeq = "", 0
		return told(err, fmt.Sprintf("%+v", m))
	},
	func(ctx context.Context, s store, _ string, k uint64, now time.Time) string {
		e := &fleetv1.Event{Body: &fleetv1.Event_Report{Report: &fleetv1.Report{Kind: fmt.Sprint(k)}}}
		err := s.Append(ctx, e, now)
		return told(err, e.GetSeq(), e.GetTs().AsTime())
	},
	func(ctx context.Context, s store, _ string, k uint64, now time.Time) string {
		list, err := s.Events(ctx, k, 5, now)
		var bodies []string
		for _, e := range list {
			b, merr := proto.MarshalOptions{Deterministic: true}.Marshal(e)
			err = errors.Join(err, merr)
			bodies = append(bodies, string(b))
		}
		return told(err, bodies)
	},
	func(ctx context.Context, s store, _ string, k uint64, _ time.Time) string {
		return told(s.Trim(ctx, k))
	},
	func(ctx context.Context, s store, _ string, _ uint64, _ time.Time) string {
		n, err := s.BufferedEvents(ctx)
		return told(err, n)
	},
}

func TestMemoryTellsOfEvents(t *testing.T) {
	t.Parallel()
	m := newMemory()
	if err := m.Append(t.Context(), &fleetv1.Event{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-m.Changed():
	default:
		t.Error("nobody was told of an event")
	}
}

func TestAForgottenMemoryKeepsItsResults(t *testing.T) {
	t.Parallel()
	m := newMemory()
	old, err := m.StateID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"open", "done"} {
		if _, _, err := m.Receive(t.Context(), state.Command{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Finish(t.Context(), "done", []byte("result"), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := m.newStateID(func(id, old string) ([]byte, error) { return []byte(id + " lost by " + old), nil },
		time.Now()); err != nil {
		t.Fatal(err)
	}
	list, err := m.Unsettled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		got = append(got, string(c.Result))
	}
	if want := []string{"open lost by " + old, "result"}; !reflect.DeepEqual(got, want) {
		t.Errorf("results %q, want %q", got, want)
	}
	if id, err := m.StateID(t.Context()); err != nil || id == old {
		t.Errorf("state id %s, %v, as before", id, err)
	}
}
