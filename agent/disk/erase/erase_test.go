package erase_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/internal/clock"
)

const size = 16 << 20

// drive is a disk of some kind. wipe is what its own erasure does.
type drive struct {
	*disktest.Disk
	nvme *disktest.NVMe
	ata  *disktest.ATA
}

func (d drive) NVMe() erase.AdminQueue {
	if d.nvme == nil {
		return nil
	}
	return d.nvme
}

func (d drive) ATA() erase.PassThrough {
	if d.ata == nil {
		return nil
	}
	return d.ata
}

func run(ctx context.Context, d drive, m erase.Method, alone bool) (erase.Evidence, error) {
	return erase.Run(ctx, erase.Config{Disk: d, Method: m, Alone: alone, Clock: soon{clock.Real()}})
}

// soon does not wait.
type soon struct{ clock.Clock }

func (s soon) After(time.Duration) <-chan time.Time { return s.Clock.After(0) }

func plain() drive { return drive{Disk: disktest.New(size)} }

func withNVMe(change func(*disktest.NVMe)) drive {
	d := plain()
	d.nvme = &disktest.NVMe{Disk: d.Disk, OACS: 2}
	change(d.nvme)
	d.nvme.Guard()
	return d
}

func withATA(change func(*disktest.ATA)) drive {
	d := plain()
	d.ata = &disktest.ATA{Disk: d.Disk, Security: 1}
	change(d.ata)
	return d
}

// Auto takes the best that works, and reports why it took nothing better.
func TestAutoTakesTheBest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		d      drive
		alone  bool
		want   erase.Method
		detail string
		why    []string
	}{
		"crypto sanitize": {withNVMe(func(n *disktest.NVMe) { n.Sanicap = 7 }), true, erase.NVMeSanitize,
			"crypto erase", nil},
		"block sanitize": {withNVMe(func(n *disktest.NVMe) { n.Sanicap = 6 }), true, erase.NVMeSanitize,
			"block erase", nil},
		"overwriting sanitize": {withNVMe(func(n *disktest.NVMe) { n.Sanicap = 4 }), true, erase.NVMeSanitize,
			"overwrite by the device", nil},
		"sanitize under way": {withNVMe(func(n *disktest.NVMe) { n.Sanicap, n.Busy = 2, 2 }), true, erase.NVMeSanitize,
			"block erase", nil},
		"sanitize takes others": {withNVMe(func(n *disktest.NVMe) { n.Sanicap = 7 }), false, erase.NVMeFormat,
			"user data erase", []string{"other disks of its controller"}},
		"crypto format": {withNVMe(func(n *disktest.NVMe) { n.FNA = 4 }), true, erase.NVMeFormat, "crypto erase",
			[]string{"no sanitize"}},
		"format takes others": {withNVMe(func(n *disktest.NVMe) { n.FNA = 2 }), false, erase.Discard, "",
			[]string{"no sanitize", "other disks"}},
		"sanitize fails": {withNVMe(func(n *disktest.NVMe) { n.Sanicap, n.Fail = 7, true }), true, erase.Discard,
			"", []string{"status is 3", "aborted"}},
		"NVMe that can do nothing": {withNVMe(func(n *disktest.NVMe) { n.OACS = 0 }), true, erase.Discard, "",
			[]string{"no sanitize", "no format command"}},
		"NVMe that lies": {withNVMe(func(n *disktest.NVMe) { n.Sanicap, n.Lie = 7, true }), true, erase.Discard, "",
			[]string{"there is data at byte "}},
		"ATA": {withATA(func(*disktest.ATA) {}), true, erase.ATASecure, "erase",
			[]string{"no NVMe", "no NVMe"}},
		"ATA enhanced": {withATA(func(a *disktest.ATA) { a.Security = 0x21 }), true, erase.ATASecure,
			"enhanced erase", nil},
		"ATA frozen": {withATA(func(a *disktest.ATA) { a.Security = 9 }), true, erase.Discard, "",
			[]string{"frozen"}},
		"ATA with a password": {withATA(func(a *disktest.ATA) { a.Security, a.Password = 3, "theirs" }), true,
			erase.Discard, "", []string{"password that another party set"}},
		"ATA without security": {withATA(func(a *disktest.ATA) { a.Security = 0 }), true, erase.Discard, "",
			[]string{"no security feature"}},
		"ATA fails": {withATA(func(a *disktest.ATA) { a.FailErase = true }), true, erase.Discard, "",
			[]string{"erase unit: command aborted"}},
		"ATA takes no password": {withATA(func(a *disktest.ATA) { a.FailPassword = true }), true, erase.Discard, "",
			[]string{"set password"}},
		"ATA keeps the password": {withATA(func(a *disktest.ATA) { a.Keep = true }), true, erase.Discard, "",
			[]string{"still has the password"}},
		"plain": {plain(), true, erase.Discard, "", []string{"no NVMe", "no ATA"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Discarded blocks become zeros on this disk.
			c.d.Disk.Trims = true
			got, err := run(t.Context(), c.d, erase.Auto, c.alone)
			if err != nil || got.Method != c.want || got.Detail != c.detail || got.Verification == "" {
				t.Fatalf("%+v, %v", got, err)
			}
			why := strings.Join(got.Why, "\n")
			for _, w := range c.why {
				if !strings.Contains(why, w) {
					t.Errorf("%q is not in %q", w, why)
				}
			}
			if c.d.ata != nil && c.d.ata.Security&2 != 0 && c.d.ata.Security != 3 {
				t.Error("the drive is left with our password")
			}
		})
	}
}

func TestAutoOverwritesInTheEnd(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(d *disktest.Disk){
		"no discard":           func(d *disktest.Disk) { d.NoDiscard = true },
		"discard leaves data":  func(d *disktest.Disk) { d.NoZero = true },
		"discard hides data":   func(d *disktest.Disk) { d.NoZero, d.DiscardLie = true, disktest.ShowsZeros },
		"zeroing does nothing": func(d *disktest.Disk) { d.ZeroLie = true },
	} {
		d := plain()
		change(d.Disk)
		got, err := run(t.Context(), d, erase.Auto, true)
		if err != nil || got.Method != erase.Overwrite || len(got.Why) != 4 ||
			!strings.Contains(got.Verification, "all 16777216 bytes") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		all := make([]byte, size)
		d.Durable(all, 0)
		if i := slices.IndexFunc(all, func(b byte) bool { return b != 0 }); i >= 0 {
			t.Errorf("%s: data at byte %d", name, i)
		}
	}
}

// A method that was asked for is used or fails, and another one is never taken instead.
func TestNamedMethodDoesNotFallBack(t *testing.T) {
	t.Parallel()
	for m, want := range map[erase.Method]error{
		erase.NVMeSanitize: erase.ErrUnsupported, erase.NVMeFormat: erase.ErrUnsupported,
		erase.ATASecure: erase.ErrUnsupported,
		erase.Discard:   erase.ErrNotErased,
	} {
		d := plain()
		d.NoZero = true
		if _, err := run(t.Context(), d, m, true); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", m, err, want)
		}
		if m != erase.Discard && len(d.Writes()) > 0 {
			t.Errorf("%s is unsupported and has written", m)
		}
	}
}

func TestFormatKeepsTheFormat(t *testing.T) {
	t.Parallel()
	// Format 0x13 of the extended list, metadata at the end of the block, protection type 2 in the first bytes.
	d := withNVMe(func(n *disktest.NVMe) { n.FLBAS, n.DPS = 0x33, 0x0a })
	if _, err := run(t.Context(), d, erase.NVMeFormat, true); err != nil {
		t.Fatal(err)
	}
	if want := uint32(3 | 1<<4 | 2<<5 | 1<<8 | 1<<9 | 1<<12); d.nvme.FormatWord != want {
		t.Errorf("CDW10 is %#x, want %#x", d.nvme.FormatWord, want)
	}
}

func TestATASequence(t *testing.T) {
	t.Parallel()
	d := withATA(func(a *disktest.ATA) { a.Security = 0x21 })
	if _, err := run(t.Context(), d, erase.ATASecure, true); err != nil {
		t.Fatal(err)
	}
	if want := []byte{0xec, 0xec, 0xec, 0xec, 0xf1, 0xf3, 0xf4, 0xec, 0xec}; !slices.Equal(d.ata.Commands, want) ||
		!d.ata.Enhanced || d.ata.Timeout < 2*time.Minute {
		t.Errorf("commands % x, enhanced: %t, time %s", d.ata.Commands, d.ata.Enhanced, d.ata.Timeout)
	}
}

func TestDisksThatFail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(d *disktest.Disk)
		want   error
	}{
		"cannot be read": {func(d *disktest.Disk) { d.OnRead = func([]byte, int64) error { return disktest.ErrIO } },
			disktest.ErrIO},
		"cannot be written": {failAfter(5 << 20), disktest.ErrIO},
		"writes are lost":   {loseAt(10 << 20), erase.ErrNotErased},
	} {
		d := plain()
		c.change(d.Disk)
		if _, err := run(t.Context(), d, erase.Overwrite, true); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func failAfter(at int64) func(*disktest.Disk) {
	return func(d *disktest.Disk) {
		d.OnWrite = func(b []byte, off int64) (int, error) {
			if off >= at {
				return 0, disktest.ErrIO
			}
			return len(b), nil
		}
	}
}

func loseAt(at int64) func(*disktest.Disk) {
	return func(d *disktest.Disk) {
		d.OnWrite = func(b []byte, off int64) (int, error) {
			if off <= at && at < off+int64(len(b)) {
				for i := range b {
					b[i] = 1
				}
			}
			return len(b), nil
		}
	}
}

func TestCancelStopsAnOverwrite(t *testing.T) {
	t.Parallel()
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	d := plain()
	d.OnWrite = func(b []byte, off int64) (int, error) {
		if off >= size/2 {
			cancel(stopped)
		}
		return len(b), nil
	}
	if _, err := run(ctx, d, erase.Overwrite, true); !errors.Is(err, stopped) || d.Written() > size/2+8<<20 {
		t.Errorf("%v after %d bytes", err, d.Written())
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]erase.Method{"": erase.Auto, "auto": erase.Auto, "overwrite": erase.Overwrite,
		"nvme-format": erase.NVMeFormat} {
		if got, err := erase.Parse(s); got != want || err != nil {
			t.Errorf("%q: %s, %v", s, got, err)
		}
	}
	if _, err := erase.Parse("hammer"); err == nil {
		t.Error("a hammer is no method")
	}
}
