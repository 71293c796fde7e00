package agents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/fleet"
)

// processes hold the fleet, each a part of it.
type processes struct {
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

// startProcesses starts the processes for n agents, without agents.
func (b *bench) startProcesses(n int, reports bool) error {
	c := &processes{size: n}
	b.fleet, b.Agents = c, nil
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if c.log, err = os.OpenFile(b.Path("agents.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	parts := (n + perProcess - 1) / perProcess
	room, err := roomOf(parts)
	if err != nil {
		return err
	}
	cfg := fleet.Config{Dir: b.identities(), Width: 64, Reports: reports, Room: room}
	for _, c := range b.Controllers {
		cfg.Addresses = append(cfg.Addresses, c.Fleet)
	}
	for range parts {
		p, err := fleet.Launch(cfg, c.log, self, Verb)
		if err != nil {
			return err
		}
		c.parts, b.Agents = append(c.parts, p), append(b.Agents, p.Pid())
	}
	return nil
}

// Verb makes this program hold a part of a fleet, for another process of it; Serve is what that one runs.
const Verb = "agents"

// Serve takes orders on standard input until its end.
func Serve(ctx context.Context) error { return fleet.Serve(ctx, os.Stdin, os.Stdout) }

// identities is where the agents keep theirs.
func (b *bench) identities() string { return b.Path("agents") }

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

// gather opens the sessions of the first n machines on the controllers, and no others. Machines without an identity
// enrol first.
func (b *bench) gather(ctx context.Context, n int) (err error) {
	if b.fleet != nil && b.fleet.size == n {
		return b.fleet.settled(ctx, n)
	}
	if err := errors.Join(b.endAgents(), b.startProcesses(n, false)); err != nil {
		return err
	}
	rig.Say("opening %d sessions, %d of them of new machines", n, max(n-b.made, 0))
	group, _ := task.New(ctx)
	group.Go("join", func(ctx context.Context) error { return b.join(ctx, 0, n) })
	group.Go("settle", func(ctx context.Context) error { return b.fleet.settled(ctx, n) })
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
			if err := b.fleet.parts[part].Add(specs...); err != nil {
				return err
			}
		}
		return nil
	})
}

// settled waits until n sessions are open and no event waits.
func (c *processes) settled(ctx context.Context, n int) error {
	return c.until(ctx, 100*time.Millisecond, func(st fleet.Status) bool { return st.Connected == n && st.Buffered == 0 })
}

// until reads the status again and again until it is as wanted, and logs it from time to time.
func (c *processes) until(ctx context.Context, every time.Duration, wanted func(fleet.Status) bool) error {
	for last := time.Now(); ; {
		st, err := c.status()
		if err != nil || wanted(st) {
			return err
		}
		if time.Since(last) > 10*time.Second {
			last = time.Now()
			rig.Say("%d of %d connected, %d enrolled, %d events wait; %s", st.Connected, c.size, st.Enrolled, st.Buffered,
				st.Trouble)
		}
		if err := rig.Pause(ctx, every); err != nil {
			return err
		}
	}
}

// status adds up that of the parts.
func (c *processes) status() (sum fleet.Status, err error) {
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
func (c *processes) each(fn func(*fleet.Remote) error) error {
	var errs []error
	for _, p := range c.parts {
		errs = append(errs, fn(p))
	}
	return errors.Join(errs...)
}

func (c *processes) reported() (map[string]int64, error) {
	return merged(c.parts, (*fleet.Remote).Reported)
}

func (c *processes) receipts() (map[string]time.Time, error) {
	return merged(c.parts, (*fleet.Remote).Receipts)
}

// merged returns what all parts have, in one map.
func merged[V any](parts []*fleet.Remote, of func(*fleet.Remote) (map[string]V, error)) (map[string]V, error) {
	all := map[string]V{}
	for _, p := range parts {
		part, err := of(p)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, part)
	}
	return all, nil
}

func (c *processes) stop() error {
	err := c.each((*fleet.Remote).Stop)
	if c.log != nil {
		err = errors.Join(err, c.log.Close())
	}
	return err
}
