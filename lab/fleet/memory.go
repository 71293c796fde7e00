package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/agent/session"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/ids"
)

// memory is an agent's memory in this process: what package state does in a database, without the cap on events.
type memory struct {
	mu      sync.Mutex
	fenced  bool
	d       *remembered
	changed chan struct{}
}

// remembered outlives the boots of a machine.
type remembered struct {
	meta     state.Meta
	commands []state.Command // in the order in which they came
	events   []*fleetv1.Event
	asks     map[string][]uint64 // of each command
}

var (
	_ dispatch.Store = (*memory)(nil)
	_ session.Store  = (*memory)(nil)
)

func newMemory() *memory {
	return &memory{d: &remembered{meta: state.Meta{StateID: ids.New(ids.State)}}, changed: make(chan struct{}, 1)}
}

// reopen fences this handle and returns a new one on the same memory, as after a restart of the agent.
func (m *memory) reopen() *memory {
	m.fence()
	return &memory{d: m.d, changed: make(chan struct{}, 1)}
}

func (m *memory) fence() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fenced = true
}

func (m *memory) use(what string, fn func(*remembered) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fenced {
		return fmt.Errorf("%s: %w", what, state.ErrFenced)
	}
	if err := fn(m.d); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (m *memory) Meta(context.Context) (out state.Meta, err error) {
	err = m.use("read meta", func(d *remembered) error {
		out = d.meta
		return nil
	})
	return out, err
}

func (m *memory) StateID(ctx context.Context) (string, error) {
	meta, err := m.Meta(ctx)
	return meta.StateID, err
}

func (m *memory) NextGrantSeqs(_ context.Context, commandIDs ...string) (out []state.GrantNumber, err error) {
	err = m.use("number asks for grants", func(d *remembered) error {
		for _, id := range commandIDs {
			d.meta.LastGrantSeq++
			out = append(out, state.GrantNumber{Seq: d.meta.LastGrantSeq, Earlier: slices.Clone(d.asks[id])})
			if d.asks == nil {
				d.asks = map[string][]uint64{}
			}
			d.asks[id] = append(d.asks[id], d.meta.LastGrantSeq)
		}
		return nil
	})
	return out, err
}

// Recognized has nothing to do: this memory is never restored from a copy.
func (m *memory) Recognized(context.Context, uint64) error { return nil }

func (m *memory) SawControllerTime(_ context.Context, t time.Time) error {
	return m.use("remember controller time", func(d *remembered) error {
		if t.After(d.meta.ControllerTime) {
			d.meta.ControllerTime = t.Truncate(time.Millisecond).UTC()
		}
		return nil
	})
}

// newStateID forgets who it was, and every command that is not done.
func (m *memory) newStateID(lost func(id, oldID string) ([]byte, error), now time.Time) error {
	return m.use("take new state id", func(d *remembered) error {
		for i := range d.commands {
			c := &d.commands[i]
			if c.State == state.Done {
				continue
			}
			result, err := lost(c.ID, d.meta.StateID)
			if err != nil {
				return err
			}
			c.State, c.Result, c.DoneAt = state.Done, result, now
		}
		d.meta.StateID = ids.New(ids.State)
		return nil
	})
}

func (d *remembered) find(id string) *state.Command {
	i := slices.IndexFunc(d.commands, func(c state.Command) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return &d.commands[i]
}

func (m *memory) Receive(_ context.Context, c state.Command) (stored state.Command, known bool, err error) {
	err = m.use("store command "+c.ID, func(d *remembered) error {
		if found := d.find(c.ID); found != nil {
			stored, known = *found, true
			return nil
		}
		c.State = state.Received
		d.commands, stored = append(d.commands, c), c
		return nil
	})
	return stored, known, err
}

// change works on a command in the state from; "" is any but done.
func (m *memory) change(what, id, from string, fn func(*state.Command)) error {
	return m.use(what+id, func(d *remembered) error {
		c := d.find(id)
		if c == nil || c.State != from && (from != "" || c.State == state.Done) {
			return state.ErrConflict
		}
		fn(c)
		return nil
	})
}

func (m *memory) Start(_ context.Context, id string, intent, grant []byte, now time.Time) error {
	err := m.change("start command ", id, state.Received, func(c *state.Command) {
		c.State, c.Intent, c.StartedAt = state.Started, intent, now
	})
	if err != nil || len(grant) == 0 {
		return err
	}
	return m.use("keep grant", func(d *remembered) error {
		d.meta.StartedGrant = string(grant)
		return nil
	})
}

func (m *memory) Unstart(_ context.Context, id string) error {
	return m.change("take back start of command ", id, state.Started, func(c *state.Command) {
		c.State, c.Intent, c.StartedAt = state.Received, nil, time.Time{}
	})
}

func (m *memory) UpdateIntent(_ context.Context, id string, intent []byte) error {
	return m.change("update intent of command ", id, state.Started, func(c *state.Command) { c.Intent = intent })
}

func (m *memory) Finish(_ context.Context, id string, result []byte, now time.Time) error {
	return m.change("store result of command ", id, "", func(c *state.Command) {
		c.State, c.Result, c.DoneAt = state.Done, result, now
	})
}

func (m *memory) Settle(_ context.Context, id string) error {
	err := m.change("settle command ", id, state.Done, func(c *state.Command) { c.Settled = true })
	if errors.Is(err, state.ErrConflict) {
		return nil
	}
	return err
}

func (m *memory) Unsettled(context.Context) (list []state.Command, err error) {
	err = m.use("list commands", func(d *remembered) error {
		for _, c := range d.commands {
			if !c.Settled {
				list = append(list, c)
			}
		}
		return nil
	})
	return list, err
}

func (m *memory) Evict(_ context.Context, now time.Time) (n int64, err error) {
	err = m.use("evict commands", func(d *remembered) error {
		before := len(d.commands)
		d.commands = slices.DeleteFunc(d.commands, func(c state.Command) bool {
			return c.Settled && c.DoneAt.Before(now.Add(-state.Retention))
		})
		n = int64(before - len(d.commands))
		return nil
	})
	return n, err
}

func (m *memory) Append(_ context.Context, e *fleetv1.Event, now time.Time) error {
	err := m.use("buffer event", func(d *remembered) error {
		d.meta.LastEventSeq++
		e.Seq, e.Ts = d.meta.LastEventSeq, timestamppb.New(now)
		d.events = append(d.events, proto.CloneOf(e))
		return nil
	})
	if err == nil {
		select {
		case m.changed <- struct{}{}:
		default:
		}
	}
	return err
}

func (m *memory) Events(_ context.Context, after uint64, limit int, _ time.Time) (list []*fleetv1.Event, err error) {
	err = m.use("read events", func(d *remembered) error {
		for _, e := range d.events {
			if e.GetSeq() > after && len(list) < limit {
				list = append(list, e)
			}
		}
		return nil
	})
	return list, err
}

func (m *memory) Trim(_ context.Context, seq uint64) error {
	return m.use("trim events", func(d *remembered) error {
		d.events = slices.DeleteFunc(d.events, func(e *fleetv1.Event) bool { return e.GetSeq() <= seq })
		if len(d.events) == 0 {
			d.events = nil
		}
		return nil
	})
}

func (m *memory) BufferedEvents(context.Context) (n int64, err error) {
	err = m.use("count events", func(d *remembered) error {
		n = int64(len(d.events))
		return nil
	})
	return n, err
}

func (m *memory) Changed() <-chan struct{} { return m.changed }
