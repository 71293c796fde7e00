package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/fleet"
)

// agents is the fleet, in several processes.
type agents struct {
	parts []*fleet.Remote
	size  int
	log   *os.File
}

// perProcess is how many agents share a process: below the open files that a process commonly may have.
const perProcess = 15000

// prefix begins the names of the fleet's machines.
const prefix = "fleet"

// countMade counts the machines that may have an identity from a run before: up to the last one that was begun with.
func (b *bench) countMade(ctx context.Context) error {
	var known bool
	if err := b.Admin.QueryRow(ctx, "SELECT to_regclass('machines') IS NOT NULL").Scan(&known); err != nil || !known {
		return err // a fresh database
	}
	err := b.Admin.QueryRow(ctx,
		"SELECT coalesce(max(substr(machine_id, $1::int))::int + 1, 0) FROM machines WHERE machine_id LIKE $2",
		len(prefix)+2, prefix+"-______").Scan(&b.made)
	if err != nil {
		return fmt.Errorf("count machines: %w", err)
	}
	return nil
}

func name(i int) string { return fmt.Sprintf("%s-%06d", prefix, i) }

// newAgents starts the processes for the agents first to first+n, without agents.
func (b *bench) newAgents(n int, reports bool) (*agents, error) {
	c := &agents{size: n}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if c.log, err = os.OpenFile(b.Path("agents.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	parts := (n + perProcess - 1) / perProcess
	room, err := roomOf(parts)
	if err != nil {
		return nil, errors.Join(err, c.log.Close())
	}
	for range parts {
		cfg := fleet.Config{Dir: b.identities(), Addresses: b.addresses(), Width: 64, Reports: reports, Room: room}
		p, err := fleet.Launch(cfg, c.log, self, agentsVerb)
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c.parts = append(c.parts, p)
	}
	return c, nil
}

// mostRoom is enough for a process of agents to take its sessions without a collection.
const mostRoom = 6 << 30

// roomOf is the memory of each of so many processes of agents: together three quarters of the machine's at most.
func roomOf(parts int) (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("read the size of the memory: %w", err)
	}
	total := int64(info.Totalram) * int64(info.Unit)
	return min(total*3/4/int64(max(parts, 1)), mostRoom), nil
}

// gather sees to it that the first n machines have their sessions on the controllers, and no others. Those that have no
// identity get one on the way.
func (b *bench) gather(ctx context.Context, n int) (err error) {
	if b.crew != nil && b.crew.size == n {
		return b.crew.settled(ctx, n)
	}
	if b.crew != nil {
		if err := b.crew.stop(); err != nil {
			return err
		}
	}
	if b.crew, err = b.newAgents(n, false); err != nil {
		return err
	}
	benchrig.Say("opening %d sessions, %d of them of new machines", n, max(n-b.made, 0))
	group, _ := task.New(ctx)
	group.Go("join", func(ctx context.Context) error { return b.join(ctx, 0, n) })
	group.Go("settle", func(ctx context.Context) error { return b.crew.settled(ctx, n) })
	if err := group.Wait(); err != nil {
		return err
	}
	b.made = max(b.made, n)
	return nil
}

// joinAtOnce is how many machines are handed over at once.
const joinAtOnce = 20

// join registers n machines from the first on, where they have no identity, and starts their agents.
func (b *bench) join(ctx context.Context, first, n int) error {
	return fleet.Parallel(ctx, (n+joinAtOnce-1)/joinAtOnce, func(ctx context.Context, chunk int) error {
		parts := map[int][]fleet.Spec{}
		for i := chunk * joinAtOnce; i < min((chunk+1)*joinAtOnce, n); i++ {
			s, err := fleet.RegisterOne(ctx, b.Conn, b.identities(), fleet.Spec{Index: first + i, Name: name(first + i)})
			if err != nil {
				return err
			}
			parts[i/perProcess] = append(parts[i/perProcess], s)
		}
		for part, specs := range parts {
			if err := b.crew.parts[part].Add(specs...); err != nil {
				return err
			}
		}
		return nil
	})
}

// settled waits until n sessions are open and no event waits.
func (c *agents) settled(ctx context.Context, n int) error {
	for last := time.Now(); ; {
		st, err := c.status()
		if err != nil {
			return err
		}
		if st.Connected == n && st.Buffered == 0 {
			return nil
		}
		if time.Since(last) > 10*time.Second {
			last = time.Now()
			benchrig.Say(
				"%d of %d connected, %d enrolled, %d events wait; %s",
				st.Connected,
				n,
				st.Enrolled,
				st.Buffered,
				st.Trouble,
			)
		}
		if err := benchrig.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// status adds up that of the parts.
func (c *agents) status() (sum fleet.Status, err error) {
	for _, p := range c.parts {
		st, err := p.Status()
		if err != nil {
			return sum, err
		}
		sum.Agents += st.Agents
		sum.Connected += st.Connected
		sum.Enrolled += st.Enrolled
		sum.Opened += st.Opened
		sum.Reboots += st.Reboots
		sum.Restarts += st.Restarts
		sum.Buffered += st.Buffered
		if st.Trouble != "" {
			sum.Trouble = st.Trouble
		}
	}
	return sum, nil
}

// each asks all parts.
func (c *agents) each(fn func(*fleet.Remote) error) error {
	var errs []error
	for _, p := range c.parts {
		errs = append(errs, fn(p))
	}
	return errors.Join(errs...)
}

func (c *agents) report() error { return c.each((*fleet.Remote).Report) }

func (c *agents) reported() (map[string]int64, error) {
	all := map[string]int64{}
	err := c.each(func(p *fleet.Remote) error {
		part, err := p.Reported()
		maps.Copy(all, part)
		return err
	})
	return all, err
}

func (c *agents) receipts() (map[string]time.Time, error) {
	all := map[string]time.Time{}
	err := c.each(func(p *fleet.Remote) error {
		part, err := p.Receipts()
		maps.Copy(all, part)
		return err
	})
	return all, err
}

func (c *agents) stop() error {
	err := c.each((*fleet.Remote).Stop)
	return errors.Join(err, c.log.Close())
}
