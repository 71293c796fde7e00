package auth

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/ids"
)

const (
	// maxRefusals bounds the rows that wait for the database. Further refusals count in one whose fields are "*".
	maxRefusals = 1000
	// maxUnknown bounds the addresses of one actor in one minute that rows tell apart, where anybody can be that actor.
	maxUnknown = 50
	// storedWithin bounds how long a refused call waits until its refusal is stored.
	storedWithin = 2 * time.Second
	// chainEvery is how often a controller looks for minutes that are over.
	chainEvery = 5 * time.Second
)

type refusalKey struct{ actor, address, method string }

// refusals counts refused calls. They are stored before their callers are answered, so that a process that is killed
// loses none. The zero value is ready.
type refusals struct {
	mu      sync.Mutex
	pending map[refusalKey]*access.Refusal
	// waiting are the callers of pending, sent those of sending.
	waiting, sent []chan struct{}
	// sending is the batch that is being stored, or whose outcome is unknown. It is sent again until it is stored.
	sending *access.RefusalBatch
	writer  string
	number  int64
	// wake asks follow for a round; it is nil while nothing follows. failing: the last round failed, and callers do not
	// wait.
	wake    chan struct{}
	failing bool
	// addresses are those of unknown callers since the minute window began.
	addresses map[string]bool
	window    time.Time
}

// addressOf returns the address under which a refusal of an unknown caller is counted: "*" where there are too many.
func (r *refusals) addressOf(address string, now time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if minute := now.Truncate(time.Minute); !minute.Equal(r.window) || r.addresses == nil {
		r.window, r.addresses = minute, map[string]bool{}
	}
	if !r.addresses[address] && len(r.addresses) >= maxUnknown {
		return "*"
	}
	r.addresses[address] = true
	return address
}

// count adds a refused call and waits until it is stored, unless the database does not answer.
func (r *refusals) count(actor, address, method, machine string) {
	stored := r.add(actor, address, method, machine)
	if stored == nil {
		return
	}
	late := time.NewTimer(storedWithin)
	defer late.Stop()
	select {
	case <-stored:
	case <-late.C:
	}
}

// add returns a channel that is closed once the call is stored; nil where no caller must wait for that.
func (r *refusals) add(actor, address, method, machine string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == nil {
		r.pending = map[refusalKey]*access.Refusal{}
	}
	key := refusalKey{actor, address, method}
	if r.pending[key] == nil && len(r.pending) >= maxRefusals {
		key, machine = refusalKey{"*", "*", "*"}, ""
	}
	one := r.pending[key]
	if one == nil {
		one = &access.Refusal{Actor: key.actor, Address: key.address, Method: key.method, Machine: machine}
		r.pending[key] = one
	}
	one.Count++
	if r.wake == nil || r.failing {
		return nil
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
	stored := make(chan struct{})
	r.waiting = append(r.waiting, stored)
	return stored
}

// follow stores the counts until ctx ends, and has minutes that are over chained.
func (r *refusals) follow(ctx context.Context, src Source, c clock.Clock, logger *slog.Logger) error {
	wake := make(chan struct{}, 1)
	r.setWake(wake)
	defer r.setWake(nil)
	tick := c.NewTicker(followEvery)
	defer tick.Stop()
	var chained time.Time
	for {
		r.round(ctx, logger, "refusals not stored yet", func(ctx context.Context) error { return r.flush(ctx, src) })
		if now := c.Now(); now.Sub(chained).Abs() >= chainEvery {
			chained = now
			r.round(ctx, logger, "refusals not in the audit log yet", src.ChainRefusals)
		}
		select {
		case <-ctx.Done():
			r.setWake(nil)
			r.round(context.WithoutCancel(ctx), logger, "refusals lost",
				func(ctx context.Context) error { return r.flush(ctx, src) })
			return nil
		case <-tick.C():
		case <-wake:
		}
	}
}

func (r *refusals) setWake(wake chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake = wake
}

func (r *refusals) round(ctx context.Context, logger *slog.Logger, failed string, fn func(context.Context) error) {
	limited, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	if err := fn(limited); err != nil && ctx.Err() == nil {
		logger.Warn("refusals could not be stored", "step", failed, "error", err.Error())
	}
}

// flush stores the batch whose outcome is unknown, and then the counts since.
func (r *refusals) flush(ctx context.Context, src Source) error {
	for {
		b := r.next()
		if b == nil {
			return nil
		}
		err := src.CountRefusals(ctx, *b)
		r.done(err)
		if err != nil {
			return err
		}
	}
}

// next returns the batch to store, nil where there is none.
func (r *refusals) next() *access.RefusalBatch {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sending != nil || len(r.pending) == 0 {
		return r.sending
	}
	if r.writer == "" {
		r.writer = ids.New("rw")
	}
	r.number++
	r.sending = &access.RefusalBatch{Writer: r.writer, Number: r.number}
	for _, one := range r.pending {
		r.sending.Refusals = append(r.sending.Refusals, *one)
	}
	slices.SortFunc(r.sending.Refusals, func(a, b access.Refusal) int {
		return cmp.Or(cmp.Compare(a.Actor, b.Actor), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Method, b.Method))
	})
	r.pending, r.sent, r.waiting = nil, r.waiting, nil
	return r.sending
}

// done releases the callers that wait. After a failure they wait no longer: what they did is kept here.
func (r *refusals) done(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing = err != nil
	release := r.sent
	r.sent = nil
	if err == nil {
		r.sending = nil
	} else {
		release = append(release, r.waiting...)
		r.waiting = nil
	}
	for _, c := range release {
		close(c)
	}
}
