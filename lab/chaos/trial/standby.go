package trial

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/localpg"
	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/standby"
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

// pairSize is the room that a server has together with its standby.
const pairSize = "800m"

func sizeOf(paired bool) string {
	if paired {
		return pairSize
	}
	return databaseSize
}

// settingsOf are a server's, with what a standby needs where there is one.
func settingsOf(paired bool) map[string]string {
	if !paired {
		return pgSettings
	}
	out := maps.Clone(pgSettings)
	maps.Copy(out, standby.Settings())
	return out
}

// attach gives the server a synchronous standby.
func (p *postgres) attach(ctx context.Context) error {
	socket, err := p.socket()
	if err != nil {
		return err
	}
	p.standbys++
	p.standby, err = standby.Attach(ctx, p.cluster, localpg.Config{
		Dir: p.homeOf(p.standbys), Settings: settingsOf(true), Logger: slog.New(slog.DiscardHandler),
	}, "host="+filepath.Dir(socket)+" port=5432", true)
	return err
}

// homeOf is the directory of the nth standby; the first server's is that of all.
func (p *postgres) homeOf(n int) string {
	if n == 0 {
		return p.dir
	}
	return filepath.Join(p.dir, fmt.Sprint("standby-", n))
}

// home is the directory of the server that has a standby: it was the standby before that one.
func (p *postgres) home() string { return p.homeOf(p.standbys - 1) }

func (p *postgres) closeStandby(ctx context.Context) error {
	if p.standby == nil {
		return nil
	}
	return p.standby.Stop(ctx)
}

// promoteStandby kills the primary, promotes the standby, leads all controllers to it, and gives it a standby.
func (c *Trial) promoteStandby(ctx context.Context, length time.Duration) (took bool, err error) {
	c.db.busy.Lock()
	defer c.db.busy.Unlock()
	if c.db.standby == nil {
		return false, nil
	}
	if err := c.db.kill(); err != nil {
		return false, err
	}
	program.Rest(ctx, length/4)
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	home := c.db.home()
	old, err := c.db.promote(ctx)
	if err != nil {
		return false, err
	}
	socket, err := c.db.socket()
	if err != nil {
		return false, err
	}
	for _, p := range c.controllers {
		p.database.Point("unix", socket)
	}
	return true, errors.Join(c.db.bury(ctx, old, home), c.db.attach(ctx))
}

// promote makes the standby the server, and gives the one that it followed.
func (p *postgres) promote(ctx context.Context) (old *localpg.Cluster, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := errors.Join(p.standby.Promote(ctx), standby.Detach(ctx, p.standby)); err != nil {
		return nil, err
	}
	old, p.cluster, p.standby = p.cluster, p.standby, nil
	return old, nil
}

// bury gives back what a dead server has held. The first one's directory is that of all, and keeps its log.
func (p *postgres) bury(ctx context.Context, old *localpg.Cluster, home string) error {
	return errors.Join(old.Stop(ctx), os.RemoveAll(filepath.Join(home, "data")))
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
