package agents

import (
	"context"
	"errors"
	"fmt"

	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/fleet"
)

const (
	// site is the name of the site, and begins those of its machines.
	site      = "bench-site"
	aboutSite = "Reboots of simulated machines behind one site agent, from the RPC to SUCCEEDED, one after the other " +
		"by each of so many clients. Controller, Postgres, site agent and clients share the processors."
	// The aims: reboots a second, and milliseconds of processor time of a reboot.
	siteRate, siteCPU = 250, 6
)

// behindSite measures reboots of machines that share one site agent.
func (b *bench) behindSite(ctx context.Context, r *report.Run) (err error) {
	rig.Say("site: %d simulated machines behind one agent", b.o.siteMachines)
	machines, err := fleet.RegisterBehind(ctx, b.Conn, site, b.o.siteMachines)
	if err != nil {
		return err
	}
	if err := fleet.Maintain(ctx, b.Conn, machines); err != nil {
		return err
	}
	agent, err := b.StartSiteAgent(ctx, site)
	if err != nil {
		return err
	}
	b.Agents = []int{agent.Pid()}
	defer func() {
		b.Agents = nil
		err = errors.Join(err, rig.Stop(agent))
	}()
	b.o.kind = kindReboot
	d := b.newDriver(ctx, machines)
	defer d.stop()
	d.failed = agent.Gone()
	// The first reboot waits for the agent's session.
	if err := d.one(ctx, newLoad()); err != nil {
		return err
	}
	return b.Profiled(func() error {
		for _, clients := range b.o.siteClients {
			t, err := b.load(ctx, d, clients)
			if err != nil {
				return err
			}
			r.Add(fmt.Sprintf("reboots, %d clients", clients), t.rate, "/s", report.AtLeast(siteRate, ""), "%s", t)
			r.Add(fmt.Sprintf("processor time of a reboot, %d clients", clients), t.use.CPU(), "ms", report.AtMost(siteCPU),
				"of it %s", t.use)
		}
		return nil
	})
}
