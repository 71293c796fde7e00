package disktest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/erase"
)

// ErrKilled is what a process gets that was killed: nothing of it reaches a disk any more.
var ErrKilled = errors.New("the process was killed")

// Unit is a disk with the names that its maker gave it.
type Unit struct {
	*Disk
	Serial, WWN, Model string
	// Subsystem is the NVM subsystem's name.
	Subsystem string
	NVMeDrive *NVMe
	ATADrive  *ATA
}

// Bus is the disks of a machine, which sysfs below Root shows under the kernel's names. What the files are and hold is
// that of Linux: drivers/scsi/scsi_sysfs.c (vpd_pg80, vpd_pg89, wwid), drivers/nvme/host/sysfs.c (wwid, nsid, serial,
// model, subsysnqn), drivers/block/virtio_blk.c (serial), block/genhd.c (size in sectors of 512 bytes, diskseq).
type Bus struct {
	Root string
	// OnOpen is called before a disk is opened for writing.
	OnOpen func(path string)

	mu     sync.Mutex
	slots  map[string]*slot
	seq    uint64
	killed atomic.Bool
}

// slot is a unit under a name. gone is set when it was taken out.
type slot struct {
	unit *Unit
	seq  uint64
	gone atomic.Bool
}

// NewBus makes a machine without disks below root.
func NewBus(root string) (*Bus, error) {
	b := &Bus{Root: root, slots: map[string]*slot{}, seq: 100}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	template, err := stateTemplate(filepath.Join(root, "scratch"))
	if err != nil {
		return nil, err
	}
	return b, errors.Join(
		b.write("proc/self/status", string(status)), b.write("proc/self/mountinfo", ""),
		os.MkdirAll(filepath.Join(root, "sys/block"), 0o755),
		b.write("template", string(template)),
	)
}

func (b *Bus) write(name, data string) error {
	path := filepath.Join(b.Root, name)
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(data), 0o600))
}

// Attach puts a unit under a kernel name. Two names are two paths to it.
func (b *Bus) Attach(name string, u *Unit) error { return b.AttachAs(name, u, 0) }

// AttachAs puts a unit under a name with a number as sysfs has it in diskseq; 0 takes the next.
func (b *Bus) AttachAs(name string, u *Unit, seq uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seq++; seq != 0 {
		b.seq = seq
	}
	dir := fmt.Sprintf("new/%d/", b.seq)
	files := map[string]string{
		"size": fmt.Sprint(u.Size() / 512), "queue/logical_block_size": fmt.Sprint(u.SectorSize),
		"diskseq": fmt.Sprint(b.seq),
		"ro":      "0", "removable": "0", "device/model": u.Model,
	}
	discard := "0"
	if !u.NoDiscard {
		discard = "2147450880"
	}
	files["queue/discard_max_bytes"] = discard
	switch {
	case strings.HasPrefix(name, "nvme"):
		files["wwid"], files["nsid"], files["device/serial"], files["device/subsysnqn"] = u.WWN, "1", u.Serial, u.Subsystem
	case strings.HasPrefix(name, "vd"):
		files["serial"] = u.Serial
	default:
		files["device/wwid"] = u.WWN
		if u.Serial != "" {
			files["device/vpd_pg80"] = "\x00\x80\x00" + string(rune(len(u.Serial))) + u.Serial
		}
		if u.ATADrive != nil {
			files["device/vpd_pg89"] = string(ataInformation(u))
		}
	}
	for file, data := range files {
		if err := b.write(dir+file, data); err != nil {
			return err
		}
	}
	b.slots[name] = &slot{unit: u, seq: b.seq}
	// A disk is shown at once.
	return os.Rename(filepath.Join(b.Root, dir), filepath.Join(b.Root, "sys/block", name))
}

// ataInformation is the VPD page 89h (SAT-4, 12.4.2), with serial number and model where ACS-4, 7.13.7 has them.
func ataInformation(u *Unit) []byte {
	page := make([]byte, 60+512)
	id := page[60:]
	u.ATADrive.identify(id)
	put := func(from, to int, s string) {
		field := []byte(fmt.Sprintf("%-*s", to-from, s))[:to-from]
		for i := 0; i < len(field); i += 2 {
			binary.BigEndian.PutUint16(id[from+i:], binary.LittleEndian.Uint16(field[i:]))
		}
	}
	put(20, 40, u.Serial)
	put(54, 94, u.Model)
	return page
}

// Detach removes the unit of that name from the bus. Reads and writes of its open files fail with ENODEV.
func (b *Bus) Detach(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.slots[name]
	if s == nil {
		return fmt.Errorf("there is no %s", name)
	}
	s.gone.Store(true)
	delete(b.slots, name)
	return os.Rename(filepath.Join(b.Root, "sys/block", name), filepath.Join(b.Root, fmt.Sprintf("new/gone-%d", s.seq)))
}

// Present returns the units that are there, by their names.
func (b *Bus) Present() map[string]*Unit {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]*Unit{}
	for name, s := range b.slots {
		out[name] = s.unit
	}
	return out
}

// Kill ends the process: writes to its open disks no longer take effect.
func (b *Bus) Kill() { b.killed.Store(true) }

// Killed reports whether the process is dead.
func (b *Bus) Killed() bool { return b.killed.Load() }

// Restart begins another process.
func (b *Bus) Restart() { b.killed.Store(false) }

// Open opens a disk by its path.
func (b *Bus) Open(path string, write bool) (*Handle, error) {
	if write && b.OnOpen != nil {
		b.OnOpen(path)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	name := strings.TrimPrefix(path, "/dev/")
	s := b.slots[name]
	if s == nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
	}
	return &Handle{bus: b, slot: s, name: name}, nil
}

// Handle is an open disk.
type Handle struct {
	bus  *Bus
	slot *slot
	name string
}

func (h *Handle) alive() error {
	switch {
	case h.bus.killed.Load():
		return ErrKilled
	case h.slot.gone.Load():
		return unix.ENODEV
	}
	return nil
}

// Unit returns the unit that is open.
func (h *Handle) Unit() *Unit { return h.slot.unit }

// Size, and what follows, are as in package block.
func (h *Handle) Size() int64 { return h.slot.unit.Size() }

// Sector is the size of a logical block.
func (h *Handle) Sector() int { return h.slot.unit.Sector() }

// Seq is the number that sysfs has as diskseq.
func (h *Handle) Seq() uint64 { return h.slot.seq }

// Close does nothing.
func (h *Handle) Close() error { return nil }

// RereadTable does nothing.
func (h *Handle) RereadTable() error { return h.alive() }

// ReadAt reads.
func (h *Handle) ReadAt(b []byte, off int64) (int, error) {
	if err := h.alive(); err != nil {
		return 0, err
	}
	return h.slot.unit.ReadAt(b, off)
}

// WriteAt writes.
func (h *Handle) WriteAt(b []byte, off int64) (int, error) {
	if err := h.alive(); err != nil {
		return 0, err
	}
	return h.slot.unit.WriteAt(b, off)
}

// Flush flushes.
func (h *Handle) Flush() error { return errors.Join(h.alive(), h.ifAlive(h.slot.unit.Flush)) }

func (h *Handle) ifAlive(fn func() error) error {
	if h.alive() != nil {
		return nil
	}
	return fn()
}

// Discard discards.
func (h *Handle) Discard(off, n int64) error {
	return errors.Join(h.alive(), h.ifAlive(func() error { return h.slot.unit.Discard(off, n) }))
}

// Zero zeros.
func (h *Handle) Zero(off, n int64) error {
	return errors.Join(h.alive(), h.ifAlive(func() error { return h.slot.unit.Zero(off, n) }))
}

// NVMe is nil for disks of other kinds, as ATA is.
func (h *Handle) NVMe() erase.AdminQueue {
	if h.slot.unit.NVMeDrive == nil {
		return nil
	}
	return adminHandle{h}
}

// ATA returns the drive's pass-through, nil if it is no ATA drive.
func (h *Handle) ATA() erase.PassThrough {
	if h.slot.unit.ATADrive == nil {
		return nil
	}
	return ataHandle{h}
}

type adminHandle struct{ h *Handle }

func (a adminHandle) Namespace() (uint32, error) {
	return 1, a.h.alive()
}

func (a adminHandle) Admin(c erase.AdminCommand) error {
	if err := a.h.alive(); err != nil {
		return err
	}
	return a.h.slot.unit.NVMeDrive.Admin(c)
}

type ataHandle struct{ h *Handle }

func (a ataHandle) ATA(c erase.ATACommand) error {
	if err := a.h.alive(); err != nil {
		return err
	}
	return a.h.slot.unit.ATADrive.ATA(c)
}

// Unclaimed has no claim to give up.
func (h *Handle) Unclaimed(fn func() error) error { return fn() }

// Part makes a loop device of the part, and writes to the disk what it holds when fn has returned. It needs root and
// losetup.
func (h *Handle) Part(_ context.Context, off, n int64, fn func(path string) error) (err error) {
	file := filepath.Join(h.bus.Root, fmt.Sprintf("part-%s-%d", h.name, h.slot.seq))
	b := block.Buffer(int(n))
	if _, err := h.ReadAt(b, off); err != nil {
		return err
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file)) }()
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("losetup (needs root and /dev/loop-control): %w: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	err = fn(device)
	if out, detach := exec.Command("losetup", "--detach", device).CombinedOutput(); detach != nil {
		err = errors.Join(err, fmt.Errorf("losetup --detach: %w: %s", detach, out))
	}
	if err != nil {
		return err
	}
	now, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return h.writeChanges(now, b, off)
}

// writeChanges writes the blocks that differ, as a file system does.
func (h *Handle) writeChanges(now, before []byte, off int64) error {
	for at := 0; at < len(now); at += block.Alignment {
		piece := now[at : at+block.Alignment]
		if string(piece) == string(before[at:at+block.Alignment]) {
			continue
		}
		if _, err := h.WriteAt(piece, off+int64(at)); err != nil {
			return err
		}
	}
	return nil
}
