package disks

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/host/disks"
)

// loops are disks of the kernel: loop devices on files. Writes to them go through the kernel's block layer, with its
// sectors, alignment and order. sysfs is that of the bus, with the kernel's own diskseq.
type loops struct {
	files map[*unit]string
	units map[string]*unit // by name
}

// realize makes devices of the units that were drawn. Two names of a unit are two devices on one file.
func (l *loops) realize(m *machine) {
	l.files, l.units = map[*unit]string{}, map[string]*unit{}
	for _, u := range m.units {
		u.ATADrive, u.NVMeDrive, u.ZeroLie, u.NoDiscard, u.DiscardLie = nil, nil, false, false, disktest.Honest
		l.save(m, u)
		paths := len(u.names)
		if u.WWN == "" || u.Serial == "" {
			paths = 1
		}
		u.names = nil
		for range paths {
			l.attach(m, u, "--find")
		}
	}
}

func (l *loops) save(m *machine, u *unit) {
	path := filepath.Join(m.bus.Root, "file-"+u.label)
	f, err := os.Create(path)
	m.must(err)
	m.must(errors.Join(f.Truncate(u.Size()), u.Save(f), f.Close()))
	l.files[u] = path
}

// attach makes a loop device, or takes the one that is named.
func (l *loops) attach(m *machine, u *unit, device string) {
	out, err := exec.Command("losetup", "--show", "--direct-io=on", "-b", strconv.Itoa(u.SectorSize), device,
		l.files[u]).CombinedOutput()
	if err != nil {
		m.t.Skipf("losetup (needs root and /dev/loop-control): %v: %s", err, out)
	}
	if device == "--find" {
		device = strings.TrimSpace(string(out))
		m.t.Cleanup(func() {
			if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
				m.t.Errorf("losetup --detach: %v: %s", err, out)
			}
		})
	}
	name := filepath.Base(device)
	u.names = append(u.names, name)
	l.units[name] = u
	seq, err := os.ReadFile(filepath.Join("/sys/block", name, "diskseq"))
	m.must(err)
	n, err := strconv.ParseUint(strings.TrimSpace(string(seq)), 10, 64)
	m.must(err)
	m.must(m.bus.AttachAs(name, u.Unit, n))
}

// swap puts a new disk behind the name of another.
func (l *loops) swap(m *machine, u *unit) {
	if len(u.names) != 1 {
		return
	}
	name := u.names[0]
	o := m.spare(u)
	o.NoDiscard, o.ZeroLie = false, false
	l.save(m, o)
	u.names[0] = "taken-out"
	m.must(m.bus.Detach(name))
	if out, err := exec.Command("losetup", "--detach", "/dev/"+name).CombinedOutput(); err != nil {
		m.t.Fatalf("losetup --detach: %v: %s", err, out)
	}
	l.attach(m, o, "/dev/"+name)
}

// collect reads what the files hold now into the units.
func (l *loops) collect(m *machine) {
	for u, path := range l.files {
		f, err := os.Open(path)
		m.must(err)
		m.must(errors.Join(u.Load(f), f.Close()))
	}
}

// open opens a device, with the faults of the unit that is behind its name.
func (l *loops) open(m *machine, path string, write bool) (disks.Disk, error) {
	if write && m.bus.OnOpen != nil {
		m.bus.OnOpen(path)
	}
	d, err := block.Open(path, write)
	if err != nil {
		return nil, err
	}
	u := l.units[filepath.Base(path)]
	if u == nil {
		return nil, fmt.Errorf("%s is no disk of this machine", path)
	}
	return faulty{Disk: d, u: u, bus: m.bus}, nil
}

// faulty is a device of the kernel with the faults of a unit.
type faulty struct {
	*block.Disk
	u   *unit
	bus *disktest.Bus
}

func (faulty) NVMe() erase.AdminQueue { return nil }
func (faulty) ATA() erase.PassThrough { return nil }

func (f faulty) ReadAt(b []byte, off int64) (int, error) {
	if f.bus.Killed() {
		return 0, disktest.ErrKilled
	}
	if f.u.OnRead != nil {
		if err := f.u.OnRead(b, off); err != nil {
			return 0, err
		}
	}
	return f.Disk.ReadAt(b, off)
}

func (f faulty) WriteAt(b []byte, off int64) (int, error) {
	if f.bus.Killed() {
		return 0, disktest.ErrKilled
	}
	if f.u.OnWrite == nil {
		return f.Disk.WriteAt(b, off)
	}
	own := block.Buffer(len(b))
	copy(own, b)
	n, err := f.u.OnWrite(own, off)
	if n == 0 {
		return 0, err
	}
	if _, failed := f.Disk.WriteAt(own[:n], off); failed != nil {
		return 0, failed
	}
	return n, err
}

func (f faulty) Flush() error {
	if f.bus.Killed() {
		return disktest.ErrKilled
	}
	if f.u.OnFlush != nil {
		if err := f.u.OnFlush(); err != nil {
			return err
		}
	}
	return f.Disk.Flush()
}

func (f faulty) Discard(off, n int64) error {
	if f.bus.Killed() {
		return disktest.ErrKilled
	}
	return f.Disk.Discard(off, n)
}

func (f faulty) Zero(off, n int64) error {
	if f.bus.Killed() {
		return disktest.ErrKilled
	}
	return f.Disk.Zero(off, n)
}
