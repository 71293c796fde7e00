package rig

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/lab/measure"
)

// Usage is processor time in milliseconds by party, committed transactions, and the seconds that passed.
type Usage struct {
	Controllers, Postgres, Agents float64
	// Clients is the time of this process: of clients, and of agents that run here.
	Clients float64
	// Commits counts the transactions of the controllers' database.
	Commits, Seconds float64
	// Apart reports that agents have processes of their own.
	Apart bool
}

// Now returns all that has been used since each process began.
func (r *Rig) Now(ctx context.Context) (u Usage, err error) {
	add := func(sum *float64, of func(int) (time.Duration, error), pids ...int) {
		for _, pid := range pids {
			used, failed := of(pid)
			if failed != nil {
				err = failed
			}
			*sum += float64(used.Microseconds()) / 1000
		}
	}
	for _, c := range r.Controllers {
		add(&u.Controllers, measure.CPU, c.Pid())
	}
	add(&u.Agents, measure.CPU, r.Agents...)
	add(&u.Postgres, measure.FamilyCPU, r.dbPid)
	add(&u.Clients, measure.CPU, os.Getpid())
	u.Seconds, u.Apart = time.Since(r.opened).Seconds(), len(r.Agents) > 0
	if err != nil {
		return u, err
	}
	err = r.Admin.QueryRow(ctx,
		"SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").Scan(&u.Commits)
	return u, err
}

// Since returns the usage since another call of Now.
func (r *Rig) Since(ctx context.Context, before Usage) (Usage, error) {
	u, err := r.Now(ctx)
	return Usage{u.Controllers - before.Controllers, u.Postgres - before.Postgres, u.Agents - before.Agents,
		u.Clients - before.Clients, u.Commits - before.Commits, u.Seconds - before.Seconds, u.Apart}, err
}

// Used returns what was used while fn ran.
func (r *Rig) Used(ctx context.Context, fn func() error) (Usage, error) {
	before, err := r.Now(ctx)
	if err != nil {
		return before, err
	}
	if err := fn(); err != nil {
		return before, err
	}
	return r.Since(ctx, before)
}

// Each returns the share of one of n.
func (u Usage) Each(n float64) Usage {
	n = max(n, 1)
	return Usage{u.Controllers / n, u.Postgres / n, u.Agents / n, u.Clients / n, u.Commits / n, u.Seconds / n, u.Apart}
}

// CPU returns the processor time of all parties.
func (u Usage) CPU() float64 { return u.Controllers + u.Postgres + u.Agents + u.Clients }

// String returns the processor time of each party.
func (u Usage) String() string {
	text := fmt.Sprintf("controller %.2f, Postgres %.2f, ", u.Controllers, u.Postgres)
	if u.Apart {
		return text + fmt.Sprintf("agents %.2f, clients %.2f", u.Agents, u.Clients)
	}
	return text + fmt.Sprintf("agents and clients %.2f", u.Clients)
}

// Memory is what a controller holds: its metrics, and its resident memory in bytes.
type Memory struct {
	measure.Metrics
	RSS float64
}

// Memory reads what the controller holds now.
func (c *Controller) Memory(ctx context.Context) (m Memory, err error) {
	if m.Metrics, err = measure.ReadMetrics(ctx, c.HTTP); err != nil {
		return m, err
	}
	rss, err := measure.RSS(c.Pid())
	m.RSS = float64(rss)
	return m, err
}

// Profiled runs fn and writes a CPU profile of the first controller meanwhile, if the rig has a file for one.
func (r *Rig) Profiled(fn func() error) error {
	if r.Profile == "" {
		return fn()
	}
	if err := r.Controllers[0].Signal(syscall.SIGUSR1); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return err
	}
	return r.Controllers[0].Signal(syscall.SIGUSR1)
}
