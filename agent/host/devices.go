package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/accelerator"
)

// Accelerator is one PCI function whose memory a soft reset clears.
type Accelerator struct {
	// Address on the bus, such as 0000:3b:00.0.
	Address string
	// Vendor and Device are their PCI ids, four lower hex digits each.
	Vendor, Device string
}

const pciDevices = "sys/bus/pci/devices"

// ErrNoReset means that a device has no reset that the kernel knows. Nothing was changed.
var ErrNoReset = errors.New("the kernel knows no reset of the device")

// Accelerators lists the machine's accelerators by their address, from sysfs. A machine without a PCI bus has none.
func (l *Linux) Accelerators() ([]Accelerator, error) {
	entries, err := os.ReadDir(filepath.Join(l.Root, pciDevices))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the PCI bus: %w", err)
	}
	var out []Accelerator
	for _, e := range entries {
		class, classErr := l.pciID(e.Name(), "class")
		vendor, vendorErr := l.pciID(e.Name(), "vendor")
		if err := errors.Join(classErr, vendorErr); err != nil {
			return nil, fmt.Errorf("read PCI device %s: %w", e.Name(), err)
		}
		if !accelerator.Is(class, vendor) {
			continue
		}
		device, err := l.pciID(e.Name(), "device")
		if err != nil {
			return nil, fmt.Errorf("read PCI device %s: %w", e.Name(), err)
		}
		out = append(out, Accelerator{Address: e.Name(), Vendor: vendor, Device: device})
	}
	return out, nil
}

func (l *Linux) pciID(address, name string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(l.Root, pciDevices, address, name))
	return strings.TrimPrefix(strings.TrimSpace(string(raw)), "0x"), err
}

// ResetDevice resets a device by the kernel's first method for it (function level reset, bus reset, …), and reads back
// that it answers. It returns the kernel's methods, or "unnamed" before Linux 5.15, which doesn't name them.
func (l *Linux) ResetDevice(_ context.Context, _ effect.Cause, d Accelerator) (methods string, err error) {
	dir := filepath.Join(l.Root, pciDevices, d.Address)
	reset, err := os.OpenFile(filepath.Join(dir, "reset"), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrNoReset
	}
	if err != nil {
		return "", fmt.Errorf("open the reset of %s: %w", d.Address, err)
	}
	methods = "unnamed"
	if raw, err := os.ReadFile(filepath.Join(dir, "reset_method")); err == nil {
		methods = strings.TrimSpace(string(raw))
	}
	_, err = reset.WriteString("1")
	if err := errors.Join(err, reset.Close()); err != nil {
		return "", fmt.Errorf("reset %s: %w", d.Address, err)
	}
	return methods, answers(filepath.Join(dir, "config"), d)
}

// answers reads the vendor id from the device's configuration space, which is all ones where the device is gone (PCI
// Express Base Specification, 2.3.2).
func answers(config string, d Accelerator) error {
	f, err := os.Open(config)
	if err != nil {
		return fmt.Errorf("read back %s: %w", d.Address, err)
	}
	defer func() { _ = f.Close() }() // nothing was written to it
	id := make([]byte, 2)
	if _, err := f.ReadAt(id, 0); err != nil {
		return fmt.Errorf("read back %s: %w", d.Address, err)
	}
	if got := fmt.Sprintf("%04x", binary.LittleEndian.Uint16(id)); got != d.Vendor {
		return fmt.Errorf("after its reset %s answers with vendor %s, and is of %s", d.Address, got, d.Vendor)
	}
	return nil
}
