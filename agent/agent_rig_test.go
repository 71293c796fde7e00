package agent_test

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// onFailpoint calls fn whenever the failpoint is passed, and goes on.
func (r *rig) onFailpoint(name string, fn func()) {
	r.fp.Set(name, failpoint.Call(func(context.Context) error {
		fn()
		return nil
	}))
}

// worldWith replaces the world's configuration, but for the directory.
func (r *rig) worldWith(cfg sim.WorldConfig) {
	r.t.Helper()
	cfg.Dir = r.dir
	w, err := sim.OpenWorld(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.world = w
	r.cfg.Host = agent.SimulatedHost(w, r.c.MachineID, 20*time.Millisecond)
}

// dial refuses new connections while blockNew is set.
func (r *rig) dial(ctx context.Context, address string) (net.Conn, error) {
	if r.blockNew.Load() {
		return nil, errors.New("blocked by the test")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// rebootFromOutside takes the machine down under the agent and doesn't come back while that lives.
func rebootFromOutside(m *sim.Machine, done chan<- struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		defer close(done)
		if err := m.Reboot(ctx, effect.Cause{CommandID: "outside"}, boot.RebootForced); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
}
