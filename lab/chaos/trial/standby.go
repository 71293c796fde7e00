package trial

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

// WithStandby reports whether the nth cell has a standby: one in four, since it costs a second server.
func WithStandby(only string, n int) bool { return n%4 == 2 || names(only, plan.Promote) }

func names(only, kind string) bool { return strings.Contains(","+only+",", ","+kind+",") }

// faults are those that a cell's runs are drawn from. A disk that is full would end both servers of a pair.
func (c *Trial) faults() []plan.Weight {
	if c.o.Wide {
		return plan.WideWeightsOf(c.o.Only)
	}
	all := plan.WeightsOf(c.o.Only, c.steppable)
	if !c.o.Standby {
		return all
	}
	all = slices.DeleteFunc(slices.Concat(all, plan.StandbyWeights), func(w plan.Weight) bool {
		return w.Kind == "full-postgres" || c.o.Only != "" && !names(c.o.Only, w.Kind)
	})
	if len(all) == 0 {
		return plan.StandbyWeights
	}
	return all
}

// promoteStandby kills the primary, promotes the standby, directs all controllers to it, and adds a standby to it.
func (c *Trial) promoteStandby(ctx context.Context, length time.Duration) (took bool, err error) {
	c.db.Busy.Lock()
	defer c.db.Busy.Unlock()
	if !c.db.HasStandby() {
		return false, nil
	}
	if err := c.db.Kill(); err != nil {
		return false, err
	}
	program.Rest(ctx, length/4)
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	home := c.db.Home()
	old, err := c.db.Promote(ctx)
	if err != nil {
		return false, err
	}
	socket, err := c.db.Socket()
	if err != nil {
		return false, err
	}
	for _, p := range c.controllers {
		p.database.Point("unix", socket)
	}
	return true, errors.Join(c.db.Bury(ctx, old, home), c.db.Attach(ctx))
}

// expired reports whether a reader's cursor is of a history that has ended: it has to begin anew.
func expired(err error) bool { return err != nil && failure.From(err).Reason == "CURSOR_EXPIRED" }

// replay is what a watcher has received, and receives once more when it begins anew.
type replay struct {
	last, known map[string]int64
}

// knows reports whether an event was received before the watcher began anew.
func (r *replay) knows(e *baremetalv1.OperationEvent) bool {
	id := e.GetSnapshot().GetOperationId()
	if e.GetSeq() <= r.known[id] {
		return true
	}
	if r.last == nil {
		r.last = map[string]int64{}
	}
	r.last[id] = max(r.last[id], e.GetSeq())
	return false
}

// again has the watcher pass over what it has received.
func (w *watcher) again() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replay.known = maps.Clone(w.replay.last)
}
