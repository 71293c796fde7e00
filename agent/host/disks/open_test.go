package disks

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/disk"
)

// busHost is an installer on emulated disks.
func busHost(t *testing.T) (*Storage, *disktest.Bus) {
	t.Helper()
	bus, err := disktest.NewBus(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return installerOf(bus.Root, func(path string, write bool) (Disk, error) {
		d, err := bus.Open(path, write)
		if err != nil {
			return nil, err
		}
		return d, nil
	}), bus
}

// with returns a disk that holds something at its beginning.
func with(serial, wwn, data string) *disktest.Unit {
	u := &disktest.Unit{Disk: disktest.New(loopSize), Serial: serial, WWN: wwn, Model: "M"}
	u.Fill([]byte(data), 0)
	return u
}

func attach(t *testing.T, bus *disktest.Bus, name string, u *disktest.Unit) {
	t.Helper()
	if err := bus.Attach(name, u); err != nil {
		t.Fatal(err)
	}
}

func untouched(t *testing.T, what string, u *disktest.Unit) {
	t.Helper()
	if n := len(u.Writes()); n > 0 {
		t.Errorf("%s: %d writes to a disk that was not chosen", what, n)
	}
}

// TestADiskThatTookTheNameIsNotWritten: the chosen disk is pulled, and another gets its name. That happens between the
// list of disks and the opening, and between the preparation and the execution. The other may have no serial number, or
// the same.
func TestADiskThatTookTheNameIsNotWritten(t *testing.T) {
	t.Parallel()
	raw := osImage(t)
	for name, c := range map[string]struct{ chosen, other string }{
		"both have a serial number": {"A", "B"}, "neither has one": {"", ""}, "both have the same": {"A", "A"},
	} {
		h, bus := busHost(t)
		attach(t, bus, "sda", with(c.chosen, "", "one"))
		other := with(c.other, "", "other")
		swap := func(string) {
			if bus.Present()["sda"] != other {
				if err := bus.Detach("sda"); err != nil {
					t.Fatal(err)
				}
				attach(t, bus, "sda", other)
			}
		}
		all, err := h.Disks()
		if err != nil {
			t.Fatal(err)
		}
		ref := all[0].Ref()
		bus.OnOpen = swap
		w := order(t, raw, new(image.Commit))
		w.DiskRule = "path=/dev/sda"
		if _, _, err := h.WriteImage(t.Context(), effect.Cause{}, w); !errors.Is(err, ErrNotWritten) {
			t.Errorf("%s, at the opening: %v", name, err)
		}
		untouched(t, name+", at the opening", other)
		w.Disk = ref
		if _, _, err := h.WriteImage(t.Context(), effect.Cause{}, w); !errors.Is(err, ErrNotWritten) {
			t.Errorf("%s, after the choice: %v", name, err)
		}
		if _, err := h.EraseDisk(t.Context(), effect.Cause{}, ref, erase.Overwrite, func(int, string) {}); err == nil {
			t.Errorf("%s: erased another disk", name)
		}
		untouched(t, name+", after the choice", other)
	}
}

// TestTwinsAreTwoDisks: two disks to which their maker gave one WWN and one serial number look like two paths to one.
func TestTwinsAreTwoDisks(t *testing.T) {
	t.Parallel()
	h, bus := busHost(t)
	one, two := with("0123456789", "naa.5000000000000001", "one"), with("0123456789", "naa.5000000000000001", "two")
	attach(t, bus, "sda", one)
	attach(t, bus, "sdb", two)
	w := order(t, osImage(t), new(image.Commit))
	w.DiskRule = "serial=0123456789"
	_, _, err := h.WriteImage(t.Context(), effect.Cause{}, w)
	var no *disk.NoUniqueMatch
	if !errors.As(err, &no) || !strings.Contains(err.Error(), "they are two disks") {
		t.Errorf("written: %v", err)
	}
	if _, err := h.EraseDisk(
		t.Context(),
		effect.Cause{},
		disk.Ref{ID: one.WWN},
		erase.Overwrite,
		nil,
	); !errors.As(
		err,
		&no,
	) {
		t.Errorf("erased: %v", err)
	}
	untouched(t, "one", one)
	untouched(t, "two", two)
}

// TestTwoPathsAreWrittenAsOne, also where one of them cannot be read, as a path in standby.
func TestTwoPathsAreWrittenAsOne(t *testing.T) {
	t.Parallel()
	for _, standby := range []bool{false, true} {
		h, bus := busHost(t)
		u := with("LU1", "naa.6001405", "data")
		attach(t, bus, "sda", u)
		attach(t, bus, "sdb", u)
		open := h.open
		h.open = func(path string, write bool) (Disk, error) {
			if standby && path == "/dev/sdb" {
				return nil, errors.New("input/output error")
			}
			return open(path, write)
		}
		w := order(t, osImage(t), new(image.Commit))
		if dev, got, err := h.WriteImage(t.Context(), effect.Cause{}, w); err != nil || got.Left != image.LeftImage ||
			dev.Path != "/dev/sda" {
			t.Errorf("standby %t: %s, %+v, %v", standby, dev, got, err)
		}
	}
}

// TestDisksOfOneSerialNumberAreErasedEach: without a rule all disks are meant, whatever their names are.
func TestDisksOfOneSerialNumberAreErasedEach(t *testing.T) {
	t.Parallel()
	h, bus := busHost(t)
	units := []*disktest.Unit{with("S", "", "one"), with("S", "", "two")}
	attach(t, bus, "sda", units[0])
	attach(t, bus, "sdb", units[1])
	all, err := h.DisksToErase("", nil)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	for i, d := range all {
		if _, err := h.EraseDisk(t.Context(), effect.Cause{}, d.Ref(), erase.Overwrite, nil); err != nil {
			t.Errorf("%s: %v", d, err)
		}
		b := make([]byte, 64)
		if units[i].Durable(b, 0); slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
			t.Errorf("%s holds %q", d, b)
		}
	}
}

// TestSeqIsTheKernels: the number that an open device has is the one in sysfs.
func TestSeqIsTheKernels(t *testing.T) {
	_, device := installer(t)
	d, err := block.Open(device, false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	machine := installerOf("/", Open)
	want := machine.sys.ReadText("sys/block/" + strings.TrimPrefix(device, "/dev/") + "/diskseq")
	if got := d.Seq(); got == 0 || want != "" && want != strconv.FormatUint(got, 10) {
		t.Errorf("%d, sysfs has %q", got, want)
	}
}
