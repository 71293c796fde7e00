package disks

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/disk/disktest"
)

// machine is the disks of a run.
type machine struct {
	t     *testing.T
	r     *rand.Rand
	bus   *disktest.Bus
	units []*unit
	names int
	loops *loops // nil: the disks are in memory
}

// unit is a disk with what it held before.
type unit struct {
	*disktest.Unit
	label  string
	names  []string // the kernel's, while it is there
	before *disktest.Disk
	old    *table
}

func newMachine(t *testing.T, r *rand.Rand) *machine {
	t.Helper()
	// In memory where there is such a file system: nothing of this has to outlive the test.
	dir, err := os.MkdirTemp("/dev/shm", "ingot-disks-*")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	bus, err := disktest.NewBus(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{t: t, r: r, bus: bus}
}

// must ends the run at errors of the test itself.
func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// one returns one of some values.
func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// add draws a disk of at least min bytes. It is not attached.
func (m *machine) add(least int64) *unit {
	r, n := m.r, len(m.units)
	sector := one(r, 512, 512, 4096)
	size := least + r.Int64N(48)<<20 + one[int64](r, 0, 8, 1)*int64(sector)
	u := &unit{label: fmt.Sprintf("disk%d", n), Unit: &disktest.Unit{Disk: disktest.New(size)}}
	u.SectorSize = sector
	u.Model, u.Serial = one(r, "MODEL A", "MODEL-B", "Ultra/9 X"), fmt.Sprintf("S%d%04x", n, r.IntN(1<<16))
	kind := one(r, "sd", "sd", "nvme", "vd")
	switch kind {
	case "sd":
		u.WWN = fmt.Sprintf("naa.5000%012x", r.Int64N(1<<40)<<4|int64(n))
		if r.IntN(2) == 0 {
			u.ATADrive = &disktest.ATA{Disk: u.Disk, Security: one[uint16](r, 0, 1, 1, 0x21, 9)}
			u.ATADrive.Guard()
		}
	case "nvme":
		u.WWN, u.Subsystem = fmt.Sprintf("eui.0025%012x", r.Int64N(1<<40)<<4|int64(n)), "nqn.2014-08.org.nvmexpress:uuid:"+
			u.Serial
		u.NVMeDrive = &disktest.NVMe{Disk: u.Disk, OACS: one[byte](r, 0, 2), Sanicap: one[uint32](r, 0, 2, 4, 7)}
		u.NVMeDrive.Guard()
	}
	if r.IntN(6) == 0 {
		u.WWN = ""
	}
	if r.IntN(8) == 0 {
		u.Serial = ""
	}
	m.fillOld(u)
	m.units = append(m.units, u)
	m.honesty(u)
	u.names = []string{m.freeName(kind)}
	return u
}

// fillOld writes the disk's former content: an old installation, or data without a table.
func (m *machine) fillOld(u *unit) {
	mark := make([]byte, 64<<10)
	for _, at := range []int64{0, 40 << 20, (u.Size() - 64<<10) / 4096 * 4096} {
		fill(m.r, mark)
		if at == 0 {
			mark[510] = 0 // no MBR by chance
		}
		u.Fill(mark, at)
	}
	if m.r.IntN(2) == 0 {
		t := randomTable(m.r, u.Size(), u.SectorSize)
		t.build(u.Size(), u.Fill)
		u.old = &t
	}
	u.before = u.Copy()
}

// honesty draws what the disk makes of discards.
func (m *machine) honesty(u *unit) {
	r := m.r
	u.Rand = rand.New(rand.NewPCG(r.Uint64(), 7))
	u.NoDiscard, u.NoZero, u.Trims = r.IntN(4) == 0, r.IntN(3) == 0, r.IntN(2) == 0
	u.DiscardLie = one(r, disktest.Honest, disktest.Honest, disktest.DoesNothing, disktest.DoesParts, disktest.ShowsZeros)
	u.ZeroLie = r.IntN(8) == 0
}

func (m *machine) freeName(kind string) string {
	n := m.names
	m.names++
	if kind == "nvme" {
		return fmt.Sprintf("nvme%dn1", n)
	}
	return kind + string(rune('a'+n))
}

// attach shows the disk under all of its names.
func (m *machine) attach(u *unit) {
	m.t.Helper()
	m.must(m.plug(u))
}

// plug is attach for other goroutines than the test's.
func (m *machine) plug(u *unit) error {
	if m.loops != nil {
		return nil // since they were drawn
	}
	for _, n := range u.names {
		if err := m.bus.Attach(n, u.Unit); err != nil {
			return err
		}
	}
	return nil
}

// addPath adds a second name to a disk, where there is such hardware.
func (m *machine) addPath(u *unit) {
	if kind := strings.TrimRight(u.names[0], "0123456789n"); strings.HasPrefix(u.names[0], "nvme") {
		u.names = append(u.names, m.freeName("nvme"))
	} else if kind != "" && strings.HasPrefix(kind, "sd") && u.ATADrive == nil {
		u.names = append(u.names, m.freeName("sd"))
	}
}

// rule is a disk rule, with the disk that it was made for.
type rule struct{ key, value string }

func (r rule) String() string {
	switch r.key {
	case "":
		return ""
	case "by-id":
		return "path=/dev/disk/by-id/" + r.value
	case "size>=", "size=":
		return r.key + r.value
	}
	return r.key + "=" + r.value
}

// ruleFor draws a rule that means a disk, and perhaps others.
func (m *machine) ruleFor(u *unit) rule {
	path := rule{"path", "/dev/" + u.names[0]}
	all := []rule{path, path, {"size>=", fmt.Sprint(u.Size())}, {"size=", fmt.Sprint(u.Size())}, {"model", u.Model}, {}}
	if u.Serial != "" {
		all = append(all, rule{"serial", u.Serial}, rule{"serial", u.Serial}, rule{"serial", u.Serial})
	}
	if u.WWN != "" {
		all = append(all, rule{"wwn", u.WWN}, rule{"wwn", u.WWN}, rule{"wwn", u.WWN})
	}
	if ids := byID(u); len(ids) > 0 {
		all = append(all, rule{"by-id", ids[0]}, rule{"by-id", ids[len(ids)-1]})
	}
	return one(m.r, all...)
}

// byID returns the names below /dev/disk/by-id by the rules of systemd (rules.d/60-persistent-storage.rules).
func byID(u *unit) []string {
	clean := strings.NewReplacer(" ", "_", "/", "_")
	var out []string
	switch {
	case strings.HasPrefix(u.names[0], "nvme"):
		if u.WWN != "" {
			out = append(out, "nvme-"+u.WWN)
		}
		if u.Serial != "" {
			out = append(out, "nvme-"+clean.Replace(u.Model)+"_"+u.Serial)
		}
	case strings.HasPrefix(u.names[0], "vd"):
		if u.Serial != "" {
			out = append(out, "virtio-"+u.Serial)
		}
	default:
		if naa, ok := strings.CutPrefix(u.WWN, "naa."); ok {
			out = append(out, "wwn-0x"+naa)
		}
		if u.ATADrive != nil && u.Serial != "" {
			out = append(out, "ata-"+clean.Replace(u.Model)+"_"+u.Serial)
		}
	}
	return out
}

// means reports whether the rule fits the disk as it is now.
func (r rule) means(u *unit) bool {
	switch r.key {
	case "serial":
		return u.Serial == r.value
	case "wwn":
		return u.WWN == r.value
	case "model":
		return u.Model == r.value
	case "path":
		return slices.Contains(u.names, strings.TrimPrefix(r.value, "/dev/"))
	case "by-id":
		return slices.Contains(byID(u), r.value)
	case "size>=":
		return fmt.Sprintf("%020d", u.Size()) >= fmt.Sprintf("%020s", r.value)
	case "size=":
		return fmt.Sprint(u.Size()) == r.value
	}
	return true
}

// meant returns the disks that are there, that the rule fits and that nothing protects.
func (m *machine) meant(r rule, protected []rule) []*unit {
	present := m.bus.Present()
	var out []*unit
	for _, u := range m.units {
		there := slices.ContainsFunc(u.names, func(n string) bool { return present[n] == u.Unit })
		if there && r.means(u) && !slices.ContainsFunc(protected, func(p rule) bool { return p.means(u) }) {
			out = append(out, u)
		}
	}
	return out
}

// draw makes the disks of a machine, the first of which is at least least bytes.
func (m *machine) draw(least int64) {
	r := m.r
	for range 1 + r.IntN(4) {
		u := m.add(least)
		if r.IntN(4) == 0 {
			m.addPath(u)
		}
	}
	if len(m.units) > 1 && r.IntN(5) == 0 {
		m.duplicate(m.units[0], m.units[1])
	}
	if m.loops != nil {
		m.loops.realize(m)
	}
}

// duplicate copies another disk's names to a disk: the serial number alone, or all of its properties.
func (m *machine) duplicate(a, b *unit) {
	b.Serial = a.Serial
	switch m.r.IntN(4) {
	case 0:
		a.WWN, b.WWN = "", ""
	case 1, 2:
		if strings.HasPrefix(a.names[0], "vd") || a.ATADrive != nil || b.ATADrive != nil {
			return
		}
		// Twins: everything is the same but the data.
		size, sector := a.Size(), a.SectorSize
		*b.Unit = disktest.Unit{Disk: disktest.New(size), Serial: a.Serial, WWN: a.WWN, Model: a.Model,
			Subsystem: a.Subsystem}
		b.SectorSize = sector
		b.old = nil
		m.fillOld(b)
		m.honesty(b)
		b.names = []string{m.freeName(strings.TrimRight(a.names[0][:2], "0123456789"))}
		if strings.HasPrefix(a.names[0], "nvme") {
			b.names = []string{m.freeName("nvme")}
		}
	}
}
