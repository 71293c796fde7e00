package chassis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/ingot-metal/ingot/lab/vm"
)

// Disk is a disk in a chassis. Its image is a sparse qcow2 file that takes no more room than was written.
type Disk struct {
	// Serial is what the machine reads as the disk's serial number (up to 20 bytes), and names the file.
	Serial string
	Bytes  int64
	// WriteLimit and BadSector: see vm.Disk.
	WriteLimit, BadSector int64
}

func (d Disk) path(dir string) string { return filepath.Join(dir, d.Serial+".qcow2") }

// make leaves an image alone that is there.
func (d Disk) make(dir string) error {
	if _, err := os.Stat(d.path(dir)); err == nil {
		return nil
	}
	cmd := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", d.path(dir), strconv.FormatInt(d.Bytes, 10))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make disk %s (qemu-img is in the package qemu-utils): %w: %s", d.Serial, err, out)
	}
	return nil
}

func (c *Chassis) diskConfigs() []vm.Disk {
	disks := make([]vm.Disk, 0, len(c.disks))
	for _, d := range c.disks {
		disks = append(disks, vm.Disk{Path: d.path(c.cfg.Dir), Serial: d.Serial, WriteLimit: d.WriteLimit,
			BadSector: d.BadSector})
	}
	return disks
}

// SetDisks replaces the disks in the slots, from the next power-on. Images that are taken out keep their contents.
func (c *Chassis) SetDisks(disks ...Disk) error {
	if c.running() != nil {
		return errors.New("change disks while the power is on")
	}
	for _, d := range disks {
		if err := d.make(c.cfg.Dir); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disks = disks
	return nil
}

// SetWriteLimit makes the disk in a slot slow, at once: in bytes a second, 0 for as fast as it goes.
func (c *Chassis) SetWriteLimit(ctx context.Context, slot int, limit int64) error {
	c.mu.Lock()
	c.disks = append([]Disk(nil), c.disks...)
	c.disks[slot].WriteLimit = limit
	c.mu.Unlock()
	v := c.running()
	if v == nil {
		return nil
	}
	return unlessGone(v, v.SetWriteLimit(ctx, slot, limit))
}

// ReadDisk returns the raw bytes of the disk in a slot, with the power off.
func (c *Chassis) ReadDisk(ctx context.Context, slot int, offset, length int64) ([]byte, error) {
	c.mu.Lock()
	path := c.disks[slot].path(c.cfg.Dir)
	c.mu.Unlock()
	out := path + ".part"
	defer func() { _ = os.Remove(out) }() // or it was never made
	// dd of qemu-img counts in blocks.
	const block = 512
	cmd := exec.CommandContext(ctx, "qemu-img", "dd", "-f", "qcow2", "-O", "raw", "bs=512",
		fmt.Sprintf("skip=%d", offset/block), fmt.Sprintf("count=%d", (offset+length)/block), "if="+path, "of="+out)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("read disk: %w: %s", err, said)
	}
	return os.ReadFile(out)
}
