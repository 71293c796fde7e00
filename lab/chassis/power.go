package chassis

import (
	"context"
	"errors"
	"fmt"

	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/vm"
)

// PowerState is on while QEMU lives.
func (c *Chassis) PowerState(context.Context) (bmc.Power, error) {
	if c.running() == nil {
		return bmc.Off, nil
	}
	return bmc.On, nil
}

// running is nil while the power is off.
func (c *Chassis) running() *vm.VM {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.machine == nil || c.machine.Off() {
		return nil
	}
	return c.machine
}

// SetPower switches.
func (c *Chassis) SetPower(ctx context.Context, s bmc.Switch) error {
	c.switching.Lock()
	defer c.switching.Unlock()
	v := c.running()
	switch {
	case s == bmc.PowerOn && v == nil:
		return c.powerOn(ctx)
	case s == bmc.ForceOff:
		return c.forceOff(ctx, v)
	case s == bmc.SoftOff && v != nil:
		return unlessGone(v, v.Powerdown(ctx))
	}
	return nil
}

// unlessGone forgives a machine that ended while it was spoken to.
func unlessGone(v *vm.VM, err error) error {
	if errors.Is(err, vm.ErrClosed) || v.Off() {
		return nil
	}
	return err
}

func (c *Chassis) forceOff(ctx context.Context, v *vm.VM) error {
	if v != nil {
		if err := v.Quit(ctx); unlessGone(v, err) != nil {
			return err
		}
		if err := v.Wait(ctx); err != nil && ctx.Err() != nil {
			return err
		}
	}
	return c.pull()
}

// pull removes the remains of the last machine, killing it if needed.
func (c *Chassis) pull() error {
	c.mu.Lock()
	v := c.machine
	c.mu.Unlock()
	if v == nil {
		return nil
	}
	return v.Stop()
}

// PullPlug ends the machine at once: what QEMU held of its disk images in memory is lost, as in a disk's cache.
func (c *Chassis) PullPlug() error {
	c.switching.Lock()
	defer c.switching.Unlock()
	return c.pull()
}

// Reset presses the reset button.
func (c *Chassis) Reset(ctx context.Context) error {
	v := c.running()
	if v == nil {
		return errors.New("reset a machine that is off")
	}
	return v.SystemReset(ctx)
}

func (c *Chassis) powerOn(ctx context.Context) error {
	if err := c.pull(); err != nil {
		return err
	}
	port, err := c.console.plug()
	if err != nil {
		return err
	}
	c.mu.Lock()
	once := c.once
	cfg := c.machineConfig(once)
	c.mu.Unlock()
	cfg.Console = port
	c.ordering.Lock()
	c.first = cfg.NetworkFirst
	c.ordering.Unlock()
	// The machine lives as long as the chassis, however it was switched on.
	v, err := vm.Start(c.ctx, cfg)
	if err != nil {
		return errors.Join(fmt.Errorf("power on %s: %w", c.cfg.Name, err), ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machine, c.settling = v, true
	c.plugged, c.cdFirst = cfg.CD != "", cfg.CDFirst
	c.powerOns++
	if c.once == once {
		c.once = bmc.BootNone // consumed
	}
	c.group.Go("boot order", func(ctx context.Context) error { return c.keepOrder(ctx, v) })
	return nil
}

func (c *Chassis) machineConfig(once bmc.Boot) vm.Config {
	return vm.Config{
		Name: c.cfg.Name, Dir: c.cfg.Dir, Firmware: c.cfg.Firmware, MemoryMB: c.cfg.MemoryMB, Tap: c.cfg.Tap,
		Launcher: c.cfg.Launcher, CardROM: c.cfg.CardROM, TPM: c.cfg.TPM, Disks: c.diskConfigs(),
		CD: c.medium, CDFirst: once == bmc.BootMedia,
		NetworkFirst: c.networkFirst(once), FirmwareSettings: firmwareSettings(c.cfg.Firmware, c.cfg.NoPXE ||
			once == bmc.BootHTTP),
	}
}

// PowerOns counts how often the power has gone on.
func (c *Chassis) PowerOns() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.powerOns
}

// Resets counts the resets over all runs, whatever their cause; power-ons are not among them.
func (c *Chassis) Resets() (int, error) { return vm.RebootsOf(c.cfg.Dir) }
