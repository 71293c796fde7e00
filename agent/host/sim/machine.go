package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// errNothingToDo: the world already is as it was asked to be; the call counts as neither asked nor effect.
var errNothingToDo = errors.New("nothing to do")

// Machine is one machine of a world as seen from outside, the way that a BMC sees it: it can be asked while the
// machine is off, and goes on when the machine reboots.
type Machine struct {
	world *World
	id    string
	// check refuses calls; Host uses it to refuse those of a process that should be dead.
	check func(*MachineState) error
}

// Machine returns the view from outside. The machine exists from its first use.
func (w *World) Machine(id string) *Machine {
	return &Machine{world: w, id: id, check: func(*MachineState) error { return nil }}
}

// state reads the machine.
func (m *Machine) state(ctx context.Context) (MachineState, error) {
	if err := ctx.Err(); err != nil {
		return MachineState{}, err
	}
	return m.world.update(m.id, func(st *MachineState, _ time.Time) error { return m.check(st) })
}

// running reads the machine and refuses if it is off.
func (m *Machine) running(ctx context.Context) (MachineState, error) {
	st, err := m.state(ctx)
	if err != nil {
		return st, err
	}
	return st, mustRun(&st)
}

func mustRun(st *MachineState) error {
	if st.On {
		return nil
	}
	return fmt.Errorf("use %s: it is off: %w", st.MachineID, ErrDown)
}

// cause asks for an effect that happens at once unless the script delays it or makes it fail.
func (m *Machine) cause(ctx context.Context, c change, unless func(*MachineState) error) (outcome, error) {
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	delay := m.world.cfg.Delay
	if c.Kind != KindReboot {
		delay = 0
	}
	check := func(st *MachineState) error {
		if err := m.check(st); err != nil {
			return err
		}
		return unless(st)
	}
	out, err := m.world.do(m.id, check, c, delay)
	if errors.Is(err, errNothingToDo) {
		return out, nil
	}
	return out, err
}

// nothingIf refuses on a machine that is off, and skips an effect that is already there.
func nothingIf(there func(*MachineState) bool) func(*MachineState) error {
	return func(st *MachineState) error {
		if err := mustRun(st); err != nil {
			return err
		}
		if there(st) {
			return errNothingToDo
		}
		return nil
	}
}

// Identity is that of the running system.
func (m *Machine) Identity(ctx context.Context) (host.Identity, error) {
	st, err := m.running(ctx)
	if err != nil {
		return host.Identity{}, err
	}
	return host.Identity{
		BootID: st.BootID, MachineID: st.OSMachineID, Hostname: st.Hostname,
		HardwareFingerprint: fingerprint(m.id), Simulated: true,
	}, nil
}

// Power reports whether the machine is on, as its BMC shows it.
func (m *Machine) Power(ctx context.Context) (on bool, err error) {
	st, err := m.state(ctx)
	if err != nil {
		return false, err
	}
	if st.ClaimedOn != nil {
		return *st.ClaimedOn, nil
	}
	return st.On, nil
}

// SetPower switches the machine on or off. A machine that is already so is left alone.
func (m *Machine) SetPower(ctx context.Context, e effect.Cause, on bool) error {
	kind := KindPowerOff
	if on {
		kind = KindPowerOn
	}
	_, err := m.cause(ctx, change{Kind: kind, Effect: e}, func(st *MachineState) error {
		if st.On == on && st.ClaimedOn == nil {
			return errNothingToDo
		}
		return nil
	})
	return err
}

// Reboot is accepted now and happens after the world's delay.
func (m *Machine) Reboot(ctx context.Context, e effect.Cause, mode boot.RebootMode) error {
	if mode != boot.RebootGraceful && mode != boot.RebootForced {
		return invalid("reboot in mode %q", mode)
	}
	_, err := m.cause(ctx, change{Kind: KindReboot, Effect: e, Detail: string(mode)}, mustRun)
	return err
}

// BootNext reads the one-shot boot entry.
func (m *Machine) BootNext(ctx context.Context) (boot.NextState, error) {
	st, err := m.state(ctx)
	return st.BootNext, err
}

// SetBootNext works while the machine is off too.
func (m *Machine) SetBootNext(ctx context.Context, e effect.Cause, t boot.Target) (boot.NextChange, error) {
	want, err := bootEntry(m.id, t)
	if err != nil {
		return boot.NextChange{}, err
	}
	var old boot.NextState
	out, err := m.cause(ctx, change{Kind: KindBootNext, Effect: e, BootNext: want, Detail: want.Target},
		func(st *MachineState) error {
			old = st.BootNext
			if st.BootNext == want {
				return errNothingToDo
			}
			return nil
		})
	if err != nil {
		return boot.NextChange{}, err
	}
	if out.fault.Mode == Lie {
		return boot.NextChange{Old: old, New: want}, nil
	}
	return boot.NextChange{Old: old, New: out.state.BootNext}, nil
}

func bootEntry(id string, t boot.Target) (boot.NextState, error) {
	entries := map[boot.Method]string{boot.PXE: "Boot0003", boot.HTTP: "Boot0004"}
	entry, ok := entries[t.Method]
	if !ok {
		return boot.NextState{}, invalid("boot by %q", t.Method)
	}
	mac := macs(id)[0]
	if t.MAC != "" {
		want, err := hwid.MAC(t.MAC)
		if err != nil {
			return boot.NextState{}, invalid("boot from %q: %v", t.MAC, err)
		}
		mac = want
	}
	target := string(t.Method) + " " + mac
	return boot.NextState{Set: true, Entry: entry, Description: "Simulated " + target, Target: target}, nil
}

// ClearBootNext removes the one-shot boot entry.
func (m *Machine) ClearBootNext(ctx context.Context, e effect.Cause) error {
	_, err := m.cause(ctx, change{Kind: KindBootNextClear, Effect: e}, func(st *MachineState) error {
		if !st.BootNext.Set {
			return errNothingToDo
		}
		return nil
	})
	return err
}

// Hostname reads the name of the running system.
func (m *Machine) Hostname(ctx context.Context) (string, error) {
	st, err := m.running(ctx)
	return st.Hostname, err
}

// SetHostname sets it.
func (m *Machine) SetHostname(ctx context.Context, e effect.Cause, name string) error {
	if err := system.ValidateHostname(name); err != nil {
		return err
	}
	_, err := m.cause(ctx, change{Kind: KindHostname, Effect: e, Hostname: name, Detail: name},
		nothingIf(func(st *MachineState) bool { return st.Hostname == name }))
	return err
}

// Firewall reads the policy that the running system holds.
func (m *Machine) Firewall(ctx context.Context) (firewall.State, error) {
	st, err := m.running(ctx)
	return st.Firewall, err
}

// ApplyFirewall replaces it.
func (m *Machine) ApplyFirewall(ctx context.Context, e effect.Cause, p firewall.Policy) error {
	if err := p.Validate(); err != nil {
		return err
	}
	digest := p.Digest()
	want := firewall.State{Present: true, Generation: p.Generation, Digest: digest, Recorded: digest}
	c := change{Kind: KindFirewall, Effect: e, Firewall: want,
		Detail: fmt.Sprintf("generation %d digest %s", p.Generation, digest)}
	_, err := m.cause(ctx, c, func(st *MachineState) error {
		if err := mustRun(st); err != nil {
			return err
		}
		apply, err := st.Firewall.Admits(p)
		if err == nil && !apply {
			return errNothingToDo
		}
		return err
	})
	return err
}

// RemoveFirewall removes it.
func (m *Machine) RemoveFirewall(ctx context.Context, e effect.Cause) error {
	_, err := m.cause(ctx, change{Kind: KindFirewallRemove, Effect: e},
		nothingIf(func(st *MachineState) bool { return !st.Firewall.Present }))
	return err
}

// Capabilities are all there are.
func (m *Machine) Capabilities() []string {
	c := []string{
		host.CapReboot,
		host.CapNetboot,
		host.CapReconfig,
		host.CapRepave,
		host.CapErase,
		host.CapReset,
		host.CapTest,
	}
	slices.Sort(c)
	return c
}

func invalid(format string, args ...any) error {
	return &effect.Refusal{Kind: effect.ErrInvalid, Reason: effect.ReasonInvalid, Detail: fmt.Sprintf(format, args...)}
}
