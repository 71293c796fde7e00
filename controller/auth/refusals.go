package auth

import (
	"context"
	"sync"
	"time"
)

// Refusal is a number of calls that were refused for lack of rights: of one actor, from one address, of one method,
// within one minute.
type Refusal struct {
	Actor, Address, Method string
	Minute                 time.Time
	Count                  int64
	// Machine is the one that the first of the calls was about; empty where there was none.
	Machine string
	// AuditID is that of its row; 0 before it has one.
	AuditID int64

	written int64
}

// maxRefusals bounds the rows of one minute. Further refusals count in one row whose method and address are "*".
const maxRefusals = 1000

// maxUnknown bounds the addresses of one actor in one minute that rows tell apart, where anybody can be that actor.
const maxUnknown = 50

// addressOf is the address under which a refusal is counted: "*" where there are too many already.
func (r *refusals) addressOf(actor, address string, now time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	others := 0
	for key := range r.all {
		if key.actor == actor && key.minute.Equal(now.Truncate(time.Minute)) {
			if key.address == address {
				return address
			}
			others++
		}
	}
	if others >= maxUnknown {
		return "*"
	}
	return address
}

type refusalKey struct {
	actor, address, method string
	minute                 time.Time
}

// refusals counts what the audit log is to have. The zero value is ready.
type refusals struct {
	mu  sync.Mutex
	all map[refusalKey]*Refusal
}

func (r *refusals) add(actor, address, method, machine string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[refusalKey]*Refusal{}
	}
	key := refusalKey{actor, address, method, now.Truncate(time.Minute)}
	if r.all[key] == nil && len(r.all) >= maxRefusals {
		key.actor, key.address, key.method, machine = "*", "*", "*", ""
	}
	one := r.all[key]
	if one == nil {
		one = &Refusal{Actor: key.actor, Address: key.address, Method: key.method, Minute: key.minute, Machine: machine}
		r.all[key] = one
	}
	one.Count++
}

// flush writes new counts, and forgets the minutes that are over.
func (r *refusals) flush(ctx context.Context, src Source) error {
	r.mu.Lock()
	var newest time.Time
	var changed []*Refusal
	for _, one := range r.all {
		if one.Minute.After(newest) {
			newest = one.Minute
		}
		if one.Count != one.written {
			c := *one
			changed = append(changed, &c)
		}
	}
	r.mu.Unlock()
	if len(changed) == 0 {
		r.forget(newest)
		return nil
	}
	if err := src.RecordRefusals(ctx, changed); err != nil {
		return err
	}
	r.mu.Lock()
	for _, c := range changed {
		if one := r.all[refusalKey{c.Actor, c.Address, c.Method, c.Minute}]; one != nil {
			one.AuditID, one.written = c.AuditID, c.Count
		}
	}
	r.mu.Unlock()
	r.forget(newest)
	return nil
}

// forget drops what has been written and cannot count on: minutes before the newest one.
func (r *refusals) forget(newest time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, one := range r.all {
		if one.Count == one.written && one.Minute.Before(newest) {
			delete(r.all, key)
		}
	}
}
