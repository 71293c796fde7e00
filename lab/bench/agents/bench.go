// Package agents measures a controller with agents: operations a second, the time of a command to its agent, and the
// cost of fleets of sessions.
//
// Everything runs on loopback from the binaries in bin/ and ends by itself. There is a private Postgres with the
// settings of `ingot-controller --dev`, and controllers in processes of their own. The agents of package fleet are the
// agent's code down to the executors, on simulated machines that execute orders at once.
package agents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// options are the command line. Each scenario takes those that it declares.
type options struct {
	kind                                  string
	agents, siteMachines, fill, scale     int
	clients, siteClients                  counts
	onlySite                              bool
	sessions, crowd, machines, probes     int
	controllers, callers, worked          int
	stages                                string
	rate                                  float64
	duration, idle, load, hold            time.Duration
	handshakes, soak, every, restOfAgents time.Duration
}

// counts is a list of numbers of clients.
type counts []int

// String implements flag.Value.
func (c *counts) String() string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint([]int(*c)), "[]"), " ", ",")
}

// Set implements flag.Value.
func (c *counts) Set(s string) error {
	*c = nil
	for word := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no number of clients", word)
		}
		*c = append(*c, n)
	}
	return nil
}

// The kinds of operations. All have one step, and all need a grant.
const (
	kindReboot = "reboot"
	// kindNetboot sets the source of the next boot. Unlike a reboot it leaves the agent its session.
	kindNetboot = "netboot"
)

func (o options) check() error {
	if o.kind != kindReboot && o.kind != kindNetboot {
		return fmt.Errorf("--kind %s: it is %s or %s", o.kind, kindReboot, kindNetboot)
	}
	return nil
}

// bench is the database, the controllers and the fleet on them.
type bench struct {
	*rig.Rig
	o     options
	fleet *processes
	// made counts the machines of the fleet that exist. Some of them may have been left without an identity.
	made int
	// handshakesPerSecond is the rate of this machine; 0 before it was measured.
	handshakesPerSecond float64
}

// with opens a bench for fn.
func with(ctx context.Context, cfg rig.Config, o options, fn func(*bench) error) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	b := &bench{o: o}
	if b.Rig, err = rig.Open(ctx, cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.endAgents(), b.Close()) }()
	if err := b.countMade(ctx); err != nil {
		return err
	}
	return fn(b)
}

// fresh starts n controllers anew, without a fleet.
func (b *bench) fresh(ctx context.Context, n int) error {
	if err := errors.Join(b.endAgents(), b.Down()); err != nil {
		return err
	}
	return b.Up(ctx, n)
}

// up starts n fresh controllers, unless that many run already.
func (b *bench) up(ctx context.Context, n int) error {
	if len(b.Controllers) == n {
		return nil
	}
	return b.fresh(ctx, n)
}

func (b *bench) endAgents() error {
	if b.fleet == nil {
		return nil
	}
	err := b.fleet.stop()
	b.fleet, b.Agents = nil, nil
	return err
}

// The limits of this part.
const (
	agentLimit  = 25 // MiB
	binaryLimit = 30 // MB, of 10^6 bytes
)

// sizes measures the binaries, and an agent that has nothing to do.
func (b *bench) sizes(ctx context.Context, r *report.Run) error {
	for _, name := range []string{"ingot-agent", "ingot-controller", "ingot"} {
		info, err := os.Stat(filepath.Join(b.Bin, name))
		if err != nil {
			return fmt.Errorf("find the binaries (make build makes them): %w", err)
		}
		var limit *report.Limit
		if name == "ingot-agent" {
			limit = report.AtMost(binaryLimit)
		}
		r.Add("binary "+name+", stripped", float64(info.Size())/1e6, "MB", limit, "the program as it is shipped")
	}
	if err := b.up(ctx, 1); err != nil {
		return err
	}
	p, err := b.StartAgent(ctx)
	if err != nil {
		return err
	}
	if err := rig.Pause(ctx, b.o.restOfAgents); err != nil {
		return errors.Join(err, rig.Stop(p))
	}
	rss, err := measure.RSS(p.Pid())
	r.Add("agent, idle", float64(rss)/measure.MiB, "MiB", report.AtMost(agentLimit),
		"resident memory of an agent that has never had a command, %s after its start", b.o.restOfAgents)
	return errors.Join(err, rig.Stop(p))
}

// addUse adds the processor time of each of n.
func addUse(r *report.Run, what string, u rig.Usage, n float64) {
	r.Add("processor time of "+what, u.Each(n).CPU(), "ms", nil, "%s", u.Each(n))
}
