package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/lab/fleet"
)

// crew is the fleet, in several processes.
type crew struct {
	parts []*fleet.Remote
	size  int
	log   *os.File
}

// perProcess is how many agents share a process: below the open files that a process commonly may have.
const perProcess = 15000

// prefix begins the names of the fleet's machines.
const prefix = "fleet"

// countMade counts the machines that have an identity from a run before.
func (b *bench) countMade() error {
	list, err := os.ReadDir(b.identities())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), prefix+"-") {
			b.made++
		}
	}
	return err
}

func name(i int) string { return fmt.Sprintf("%s-%06d", prefix, i) }

// newCrew starts the processes for the agents first to first+n, without agents.
func (b *bench) newCrew(n int, reports bool) (*crew, error) {
	c := &crew{size: n}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if c.log, err = os.OpenFile(b.path("agents.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	for range (n + perProcess - 1) / perProcess {
		cfg := fleet.Config{Dir: b.identities(), Addresses: b.addresses(), Width: 64, Reports: reports}
		p, err := fleet.Launch(cfg, c.log, self, agentsVerb)
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c.parts = append(c.parts, p)
	}
	return c, nil
}

// gather sees to it that the first n machines have their sessions on the controllers, and no others.
func (b *bench) gather(ctx context.Context, n int) (err error) {
	if b.crew != nil && b.crew.size == n {
		return b.crew.settled(ctx, n)
	}
	if b.crew != nil {
		if err := b.crew.stop(); err != nil {
			return err
		}
		b.crew = nil
	}
	if missing := n - b.made; missing > 0 {
		say("registering %d machines", missing)
	}
	specs := make([]fleet.Spec, n)
	err = fleet.Parallel(ctx, n, func(ctx context.Context, i int) (err error) {
		specs[i], err = fleet.RegisterOne(ctx, b.conn, b.identities(), fleet.Spec{Index: i, Name: name(i)})
		return err
	})
	if err != nil {
		return err
	}
	b.made = max(b.made, n)
	if b.crew, err = b.newCrew(n, false); err != nil {
		return err
	}
	say("opening %d sessions", n)
	for i, p := range b.crew.parts {
		if err := p.Add(specs[i*perProcess : min((i+1)*perProcess, n)]...); err != nil {
			return err
		}
	}
	return b.crew.settled(ctx, n)
}

// settled waits until n sessions are open and no event waits.
func (c *crew) settled(ctx context.Context, n int) error {
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
			say("%d of %d connected, %d enrolled, %d events wait; %s", st.Connected, n, st.Enrolled, st.Buffered, st.Trouble)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// status adds up that of the parts.
func (c *crew) status() (sum fleet.Status, err error) {
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
		sum.Buffered += st.Buffered
		if st.Trouble != "" {
			sum.Trouble = st.Trouble
		}
	}
	return sum, nil
}

// each asks all parts.
func (c *crew) each(fn func(*fleet.Remote) error) error {
	var errs []error
	for _, p := range c.parts {
		errs = append(errs, fn(p))
	}
	return errors.Join(errs...)
}

func (c *crew) report() error { return c.each((*fleet.Remote).Report) }

func (c *crew) reported() (map[string]int64, error) {
	all := map[string]int64{}
	err := c.each(func(p *fleet.Remote) error {
		part, err := p.Reported()
		maps.Copy(all, part)
		return err
	})
	return all, err
}

func (c *crew) receipts() (map[string]time.Time, error) {
	all := map[string]time.Time{}
	err := c.each(func(p *fleet.Remote) error {
		part, err := p.Receipts()
		maps.Copy(all, part)
		return err
	})
	return all, err
}

func (c *crew) stop() error {
	err := c.each((*fleet.Remote).Stop)
	return errors.Join(err, c.log.Close())
}
