package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/results"
)

// site is the name of the site, and begins those of its machines.
const site = "bench-site"

// behindSite measures reboots of machines that one site agent works on for all.
func (g *rig) behindSite(ctx context.Context) (out []throughput, err error) {
	if err := g.Up(ctx, 1); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Down()) }()
	benchrig.Say("site: %d simulated machines behind one agent", g.o.siteMachines)
	by := workers{}
	if by.machines, err = fleet.RegisterBehind(ctx, g.Conn, site, g.o.siteMachines); err != nil {
		return nil, err
	}
	if err := fleet.Maintain(ctx, g.Conn, by.machines); err != nil {
		return nil, err
	}
	agent, err := g.StartSiteAgent(ctx, site)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, agent.Stop()) }()
	if by.gone, by.why = agent.Gone(), agent.Tail; !g.InProcess {
		by.processes = []int{agent.Pid()}
	}
	d, err := newDriver(ctx, g, kindReboot, by)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	// The first reboot waits for the agent's session.
	if _, err := d.operate(ctx); err != nil {
		return nil, err
	}
	endProfile, err := benchrig.StartProfile(g.o.profile)
	if err != nil {
		return nil, err
	}
	for _, clients := range g.o.siteClients {
		t, err := g.load(ctx, d, clients)
		if err != nil {
			return nil, errors.Join(err, endProfile())
		}
		out = append(out, t)
	}
	return out, endProfile()
}

// The aims for machines behind a site agent.
const (
	siteRate = 250 // reboots a second
	siteCPU  = 6   // milliseconds of processor time of a reboot
)

func (t *throughput) printBehindSite(row func(what, format string, args ...any)) {
	row(
		fmt.Sprintf("%d clients: reboots behind a site agent", t.Clients),
		"%.1f /s: %s (%d); %d on %d machines, %d failed",
		t.PerSecond,
		verdict(t.PerSecond >= siteRate),
		siteRate,
		t.Done,
		t.Agents,
		t.Failed,
	)
	row("  time of one", "p50 %.1f ms, p99 %.1f ms", t.Total.P50, t.Total.P99)
	row("  processor time of one", "%.2f ms: %s (%d); %s", t.CPU.Sum(), verdict(t.CPU.Sum() <= siteCPU), siteCPU,
		t.siteParties())
	row("  transactions of one", "%.2f", t.Commits)
}

func (t *throughput) siteParties() string {
	return fmt.Sprintf("controller %.2f, site agent %.2f, Postgres %.2f, clients %.2f", t.CPU.Controller, t.CPU.Agents,
		t.CPU.Postgres, t.CPU.Own)
}

const aboutSite = "Reboots of simulated machines behind one site agent, from the RPC to SUCCEEDED, one after the other " +
	"by each of so many clients. Controller, Postgres, site agent and clients share the processors."

// siteRun is the part of the results about machines behind a site agent.
func (r report) siteRun() results.Run {
	run := results.Run{Name: "site", Title: "Machines behind a site agent", About: aboutSite}
	for _, t := range r.BehindSite {
		run.Figures = append(
			run.Figures,
			results.Figure{What: fmt.Sprintf("reboots, %d clients", t.Clients), Value: t.PerSecond, Unit: "/s",
				Limit: results.AtLeast(siteRate, ""),
				Says: fmt.Sprintf("One takes %.0f ms (p99 %.0f) and %.2f transactions, on %d machines.", t.Total.P50, t.Total.P99,
					t.Commits, t.Agents)},
			results.Figure{
				What:  fmt.Sprintf("processor time of a reboot, %d clients", t.Clients),
				Value: t.CPU.Sum(),
				Unit:  "ms",
				Limit: results.AtMost(siteCPU),
				Says:  "Of it " + t.siteParties() + ".",
			},
		)
	}
	return run
}
