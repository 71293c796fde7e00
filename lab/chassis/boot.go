package chassis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/vm"
)

// settleTime without a reset means that the firmware has read the boot order.
const settleTime = 1500 * time.Millisecond

// BootOnce is the device of the next boot, if there is one.
func (c *Chassis) BootOnce(context.Context) (bmc.Boot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.once, nil
}

// SetBootOnce chooses it. Virtual media needs an image, and a power-on; HTTP needs UEFI, and a power-on.
func (c *Chassis) SetBootOnce(ctx context.Context, b bmc.Boot) error {
	c.mu.Lock()
	medium := c.medium
	c.mu.Unlock()
	switch {
	case b == bmc.BootMedia && medium == "":
		return errors.New("this machine has no virtual media attached")
	case b == bmc.BootHTTP && c.cfg.Firmware != vm.UEFI:
		return errors.New("this machine's firmware doesn't boot by HTTP")
	}
	c.mu.Lock()
	c.once = b
	settling := c.settling
	c.mu.Unlock()
	if v := c.running(); v != nil && !settling {
		return c.setOrder(ctx, v, c.networkFirst(b))
	}
	return nil
}

// setOrder does not set the present order again: QEMU refuses that.
func (c *Chassis) setOrder(ctx context.Context, v *vm.VM, networkFirst bool) error {
	c.ordering.Lock()
	defer c.ordering.Unlock()
	if c.first == networkFirst {
		return nil
	}
	c.first = networkFirst
	return unlessGone(v, v.SetNetworkFirst(ctx, networkFirst))
}

func (c *Chassis) networkFirst(once bmc.Boot) bool {
	switch once {
	case bmc.BootPXE, bmc.BootHTTP:
		return true
	case bmc.BootDisk:
		return false
	default:
		return c.cfg.NetworkFirst
	}
}

// firmwareSettings switch PXE off for an HTTP boot: OVMF would try it first. IPv6 costs it half a minute before it goes
// on to the next device (OvmfPkg/Library/PxeBcPcdProducerLib).
func firmwareSettings(fw vm.Firmware, noPXE bool) map[string]string {
	if fw != vm.UEFI {
		return nil
	}
	settings := map[string]string{"opt/org.tianocore/IPv6PXESupport": "n"}
	if noPXE {
		settings["opt/org.tianocore/IPv4PXESupport"] = "n"
	}
	return settings
}

// keepOrder ends with the machine. At each reset it lets the firmware read the order that was chosen for it, and then
// puts back the one for the boot after.
func (c *Chassis) keepOrder(ctx context.Context, v *vm.VM) error {
	for seen := 0; ; {
		events, err := c.nextEvents(ctx, v, seen)
		switch {
		case ctx.Err() != nil || errors.Is(err, vm.ErrClosed):
			return nil
		case errors.Is(err, context.DeadlineExceeded):
			if err := c.settle(ctx, v); err != nil {
				return fmt.Errorf("put back boot order of %s: %w", c.cfg.Name, err)
			}
		case err != nil:
			return err
		}
		seen += len(events)
		for _, e := range events {
			if e.Name == "RESET" {
				c.consume()
			}
		}
	}
}

func (c *Chassis) nextEvents(ctx context.Context, v *vm.VM, seen int) ([]vm.Event, error) {
	c.mu.Lock()
	settling := c.settling
	c.mu.Unlock()
	if settling {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, settleTime)
		defer cancel()
	}
	return v.EventsAfter(ctx, seen)
}

// consume is called at each reset. Those that follow while the machine settles are of the same boot.
func (c *Chassis) consume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.settling {
		c.settling, c.once = true, bmc.BootNone
	}
}

func (c *Chassis) settle(ctx context.Context, v *vm.VM) error {
	c.mu.Lock()
	c.settling = false
	once, cdFirst := c.once, c.cdFirst
	c.cdFirst = false
	c.mu.Unlock()
	if cdFirst {
		if err := unlessGone(v, v.SetCDFirst(ctx, false)); err != nil {
			return err
		}
	}
	return c.setOrder(ctx, v, c.networkFirst(once))
}

// Settled reports whether the firmware has read the order of this boot: a choice made now is for the next.
func (c *Chassis) Settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.settling
}
