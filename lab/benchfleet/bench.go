package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// bench is the database, the controllers and the fleet on them.
type bench struct {
	*benchrig.Rig
	o    options
	crew *agents
	// made is how many machines of the fleet exist; some of them may have been left without an identity.
	made int
}

// The interval of heartbeats: the default, and that of a crowd. All agents and controllers share these processors,
// which the heartbeats of so many would fill at the default.
const (
	heartbeat      = 10 * time.Second
	crowdHeartbeat = 30 * time.Second
)

func newBench(ctx context.Context, o options) (b *bench, err error) {
	b = &bench{o: o}
	if b.Rig, err = benchrig.Open(ctx, benchrig.Config{Bin: o.bin, Dir: o.dir}); err != nil {
		return nil, err
	}
	b.setHeartbeat(heartbeat)
	if err := b.countMade(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// setHeartbeat sets the interval that the next controllers ask for.
func (b *bench) setHeartbeat(every time.Duration) {
	b.Settings = fmt.Sprintf("agents: {heartbeat_interval: %s}\nlog: {level: warn}\n", every)
}

// identities is where the agents keep theirs.
func (b *bench) identities() string { return b.Path("agents") }

func (b *bench) close() error { return errors.Join(b.endAgents(), b.Close()) }

// down ends fleet and controllers.
func (b *bench) down() error { return errors.Join(b.endAgents(), b.Down()) }

func (b *bench) endAgents() error {
	if b.crew == nil {
		return nil
	}
	err := b.crew.stop()
	b.crew = nil
	return err
}

// up starts n fresh controllers, unless that many run already.
func (b *bench) up(ctx context.Context, n int) error {
	if len(b.Controllers) != n {
		if err := b.endAgents(); err != nil {
			return err
		}
	}
	return b.Up(ctx, n)
}

func (b *bench) addresses() []string {
	var out []string
	for _, c := range b.Controllers {
		out = append(out, c.Fleet)
	}
	return out
}

// memory is what a controller uses.
func memory(ctx context.Context, c *benchrig.Controller) (rss int64, m measure.Metrics, err error) {
	if m, err = measure.ReadMetrics(ctx, c.HTTP); err != nil {
		return 0, nil, err
	}
	rss, err = c.RSS()
	return rss, m, err
}
