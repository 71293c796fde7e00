package chassis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/vm"
)

// Config describes a chassis.
type Config struct {
	// Name is shown by QEMU; MAC, serial number and UUID are derived from it.
	Name string
	// Dir is the chassis' own; it is made. Its path must be short, for the sake of Unix sockets in it.
	Dir string
	// Firmware is vm.BIOS or vm.UEFI.
	Firmware vm.Firmware
	// Tap is the device of its network card, and Launcher runs QEMU where that device is; see vm.Config.
	Tap      string
	Launcher []string
	// Disks are made when they aren't there yet.
	Disks []Disk
	// MemoryMB is in MiB; 512 when 0.
	MemoryMB int
	// NetworkFirst is the order of a machine without another one: from the network, and then from disk.
	NetworkFirst bool
	// CardROM: see vm.Config.
	CardROM bool
	// TPM: see vm.Config.
	TPM bool
	// NoPXE is for UEFI: the firmware boots from the network by HTTP only.
	NoPXE bool
}

const defaultMemoryMB = 512

// Chassis is a computer. It is a bmc.Chassis, with more handles.
type Chassis struct {
	cfg     Config
	about   bmc.About
	console *console
	group   *task.Group
	ctx     context.Context
	cancel  context.CancelFunc

	// switching is held while power goes on or off.
	switching sync.Mutex

	ordering sync.Mutex
	first    bool // whether QEMU has the network first now

	mu       sync.Mutex
	machine  *vm.VM // nil until the first power-on; it may have ended
	disks    []Disk
	once     bmc.Boot
	settling bool // the firmware may still read the order of this boot
	powerOns int
	// medium is the image that the BMC attaches. plugged is set when the running machine has it in its drive, cdFirst when
	// its firmware tries it first.
	medium           string
	plugged, cdFirst bool
}

var (
	_ bmc.Chassis = (*Chassis)(nil)
	_ bmc.Drive   = (*Chassis)(nil)
)

// New makes a chassis whose power is off. Close must be called.
func New(cfg Config) (*Chassis, error) {
	if cfg.Firmware != vm.BIOS && cfg.Firmware != vm.UEFI {
		return nil, fmt.Errorf("make chassis %s: it cannot boot from the network with firmware %q", cfg.Name, cfg.Firmware)
	}
	if cfg.MemoryMB == 0 {
		cfg.MemoryMB = defaultMemoryMB
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make chassis %s: %w", cfg.Name, err)
	}
	for _, d := range cfg.Disks {
		if err := d.make(cfg.Dir); err != nil {
			return nil, fmt.Errorf("make chassis %s: %w", cfg.Name, err)
		}
	}
	con, err := newConsole(filepath.Join(cfg.Dir, vm.SerialFile))
	if err != nil {
		return nil, fmt.Errorf("make chassis %s: %w", cfg.Name, err)
	}
	c := &Chassis{cfg: cfg, console: con, disks: cfg.Disks}
	c.about = c.describe()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.group, c.ctx = task.New(c.ctx)
	return c, nil
}

func (c *Chassis) describe() bmc.About {
	identity := vm.Config{Name: c.cfg.Name}.Identity()
	return bmc.About{
		Name: c.cfg.Name, UUID: identity.UUID, Serial: identity.Serial, MACs: []string{identity.MAC},
		UEFI: c.cfg.Firmware == vm.UEFI,
	}
}

// About returns the constant properties.
func (c *Chassis) About() bmc.About { return c.about }

// Dir is where its files are.
func (c *Chassis) Dir() string { return c.cfg.Dir }

// Close cuts the power and returns when nothing of the chassis runs any more. Its files stay.
func (c *Chassis) Close() error {
	c.switching.Lock()
	defer c.switching.Unlock()
	c.cancel()
	err := c.pull()
	return errors.Join(err, c.group.Wait(), c.console.close())
}
