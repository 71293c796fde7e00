package erase_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/internal/clock"
)

const ours = "ingot-erase"

// TestADiscardThatKeepsAMegabyteIsNoErasure: a disk that discards all blocks but a few, which no sample need hit.
func TestADiscardThatKeepsAMegabyteIsNoErasure(t *testing.T) {
	t.Parallel()
	const large, secret = 64 << 20, 37<<20 + 128<<10
	d := drive{Disk: disktest.New(large)}
	d.Trims = true
	b := block.Buffer(64 << 10)
	copy(b, "secret")
	if _, err := d.WriteAt(b, secret); err != nil {
		t.Fatal(err)
	}
	honest := d.Disk
	lies := discardLiar{honest, secret}
	got, err := erase.Run(t.Context(), erase.Config{Disk: lies, Method: erase.Discard, Clock: soon{clock.Real()}})
	if !errors.Is(err, erase.ErrNotErased) || got.Verification != "" {
		t.Fatalf("%+v, %v", got, err)
	}
	got, err = erase.Run(t.Context(), erase.Config{Disk: lies, Method: erase.Auto, Clock: soon{clock.Real()}})
	if err != nil || got.Method != erase.Overwrite || nonZero(honest) >= 0 {
		t.Fatalf("%+v, %v, data at %d", got, err, nonZero(honest))
	}
}

// discardLiar passes a discard on for all but the block at keep.
type discardLiar struct {
	*disktest.Disk
	keep int64
}

func (discardLiar) NVMe() erase.AdminQueue { return nil }
func (discardLiar) ATA() erase.PassThrough { return nil }

func (l discardLiar) Discard(off, n int64) error {
	const grain = 64 << 10
	for at := off; at < off+n; at += grain {
		if at == l.keep {
			continue
		}
		if err := l.Disk.Discard(at, grain); err != nil {
			return err
		}
	}
	return nil
}

// Zero is as little worth as its Discard.
func (l discardLiar) Zero(off, n int64) error { return l.Discard(off, n) }

func nonZero(d *disktest.Disk) int64 {
	b := make([]byte, 1<<20)
	for off := int64(0); off < d.Size(); off += int64(len(b)) {
		d.Durable(b, off)
		if i := slices.IndexFunc(b, func(c byte) bool { return c != 0 }); i >= 0 {
			return off + int64(i)
		}
	}
	return -1
}

// TestADeviceThatDoesNothingIsNoticedOnAnEmptyDisk: where the disk holds nothing, nothing could change.
func TestADeviceThatDoesNothingIsNoticedOnAnEmptyDisk(t *testing.T) {
	t.Parallel()
	d := withNVMe(func(n *disktest.NVMe) { n.Sanicap, n.Lie = 7, true })
	zeros := block.Buffer(1 << 20)
	for off := int64(0); off < size; off += 1 << 20 {
		if _, err := d.WriteAt(zeros, off); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []erase.Method{erase.NVMeSanitize, erase.NVMeFormat} {
		if got, err := run(t.Context(), d, m, true); !errors.Is(err, erase.ErrNotErased) {
			t.Errorf("%s: %+v, %v", m, got, err)
		}
	}
}

// TestHiddenAreasAreNamed as the standards have drives tell of them.
func TestHiddenAreasAreNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		d    drive
		want []string
	}{
		"none":         {withATA(func(*disktest.ATA) {}), nil},
		"HPA":          {withATA(func(a *disktest.ATA) { a.HPA = 2048 }), []string{"(HPA): 2048 sectors"}},
		"HPA, 28 bits": {withATA(func(a *disktest.ATA) { a.HPA, a.Old = 7, true }), []string{"(HPA): 7 sectors"}},
		"DCO":          {withATA(func(a *disktest.ATA) { a.DCO = 99 }), []string{"(DCO): 99 sectors"}},
		"HPA and DCO": {withATA(func(a *disktest.ATA) { a.HPA, a.DCO = 10, 30 }),
			[]string{"(HPA): 10 sectors", "(DCO): 30 sectors"}},
		"AMAC": {withATA(func(a *disktest.ATA) { a.AMAC = 5 }), []string{"max address: 5 sectors"}},
		"does not tell": {withATA(func(a *disktest.ATA) { a.HPA, a.Mute = 5, true }),
			[]string{"(HPA): the drive does not tell"}},
		"NVMe, one space": {withNVMe(func(*disktest.NVMe) {}), nil},
		"NVMe, unallocated": {withNVMe(func(n *disktest.NVMe) { n.OACS, n.Free, n.Attached, n.Allocated = 10, 1<<30, 1, 1 }),
			[]string{"1073741824 bytes"}},
		"NVMe, detached": {withNVMe(func(n *disktest.NVMe) { n.OACS, n.Attached, n.Allocated = 10, 1, 3 }),
			[]string{"2 namespaces"}},
		"neither": {plain(), []string{"neither ATA nor NVMe"}},
	} {
		got, err := run(t.Context(), c.d, erase.Overwrite, true)
		if err != nil || len(got.Hidden) != len(c.want) {
			t.Errorf("%s: %q, %v", name, got.Hidden, err)
			continue
		}
		for i, w := range c.want {
			if !strings.Contains(got.Hidden[i], w) {
				t.Errorf("%s: %q has no %q", name, got.Hidden[i], w)
			}
		}
	}
}

// TestADriveWithOurPasswordIsUnlocked, by every method, and none leaves the password on it.
func TestADriveWithOurPasswordIsUnlocked(t *testing.T) {
	t.Parallel()
	for _, m := range []erase.Method{erase.Auto, erase.ATASecure, erase.Discard, erase.Overwrite} {
		d := withATA(func(a *disktest.ATA) { a.Lock(ours) })
		d.Trims = true
		got, err := run(t.Context(), d, m, true)
		if err != nil || d.ata.Security&6 != 0 || m == erase.Auto && got.Method != erase.ATASecure || len(got.Notes) != 1 {
			t.Errorf("%s: %+v, %v, security %#x", m, got, err, d.ata.Security)
		}
	}
}

// TestADriveOfSomebodyElseIsTriedOnce: a drive counts wrong passwords.
func TestADriveOfSomebodyElseIsTriedOnce(t *testing.T) {
	t.Parallel()
	d := withATA(func(a *disktest.ATA) { a.Lock("theirs") })
	if _, err := run(t.Context(), d, erase.Auto, true); !errors.Is(err, erase.ErrUnsupported) || d.ata.Tries != 4 {
		t.Errorf("%v, %d tries left", err, d.ata.Tries)
	}
}

// TestAPasswordThatStaysIsNoErasure, though another method has erased the disk.
func TestAPasswordThatStaysIsNoErasure(t *testing.T) {
	t.Parallel()
	d := withATA(func(a *disktest.ATA) { a.Keep, a.KeepDisabled = true, true })
	d.Trims = true
	if got, err := run(t.Context(), d, erase.Auto, true); !errors.Is(err, erase.ErrNotErased) ||
		got.Method != erase.Discard {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestASanitizeUnderWayIsWaitedFor, by every method: the media cannot be read before it ends.
func TestASanitizeUnderWayIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, m := range []erase.Method{erase.NVMeSanitize, erase.NVMeFormat, erase.Overwrite} {
		for _, ended := range []uint16{1, 3} {
			d := withNVMe(func(n *disktest.NVMe) { n.Sanicap, n.Busy, n.Result, n.Estimate = 2, 5, ended, 7200 })
			got, err := run(t.Context(), d, m, true)
			if err != nil || d.nvme.Polls < 5 || len(got.Notes) != 1 {
				t.Errorf("%s after status %d: %+v, %v", m, ended, got, err)
			}
		}
	}
}

// TestAnATASanitizeUnderWayIsWaitedFor, by every method: the drive aborts all other commands before it ends. One that
// has failed is named.
func TestAnATASanitizeUnderWayIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, m := range []erase.Method{erase.Auto, erase.ATASecure, erase.Overwrite} {
		d := withATA(func(a *disktest.ATA) { a.HasSanitize, a.Sanitizing = true, 5 })
		d.ata.Guard()
		got, err := run(t.Context(), d, m, true)
		if err != nil || d.ata.Polls < 6 || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "has ended first") {
			t.Errorf("%s: %+v, %v", m, got, err)
		}
	}
	d := withATA(func(a *disktest.ATA) { a.HasSanitize, a.SanitizeFailed = true, true })
	d.ata.Guard()
	got, err := run(t.Context(), d, erase.Auto, true)
	if err == nil || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "may have failed") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestADiscardWithoutGuaranteeIsSaidToBeOne: the disk shows zeros, and the old data again when it has lost its power.
func TestADiscardWithoutGuaranteeIsSaidToBeOne(t *testing.T) {
	t.Parallel()
	for _, m := range []erase.Method{erase.Auto, erase.Discard} {
		for _, zero := range []bool{false, true} {
			d := plain()
			d.DiscardLie, d.NoZero = disktest.ShowsZeros, !zero
			got, err := run(t.Context(), d, m, true)
			said := strings.Contains(strings.Join(got.Notes, " "), "after a loss of power")
			if err != nil || said != (nonZero(d.PowerOn()) >= 0) || m == erase.Auto && said || m == erase.Discard &&
				said == zero {
				t.Errorf("%s, zeroing %t: %+v, %v; data at %d", m, zero, got, err, nonZero(d.PowerOn()))
			}
		}
	}
}

// TestASectorThatCannotBeReadStopsNothing: a pending sector is one until it is written (ACS-2, 7.40, WRITE
// UNCORRECTABLE).
func TestASectorThatCannotBeReadStopsNothing(t *testing.T) {
	t.Parallel()
	for _, m := range []erase.Method{erase.NVMeFormat, erase.Overwrite} {
		d := withNVMe(func(*disktest.NVMe) {})
		pending := map[int64]bool{0: true, 5 << 20: true}
		d.OnRead = func(b []byte, off int64) error {
			for at := range pending {
				if off <= at && at < off+int64(len(b)) {
					return disktest.ErrIO
				}
			}
			return nil
		}
		d.OnWrite = func(b []byte, off int64) (int, error) {
			for at := range pending {
				if off <= at && at < off+int64(len(b)) {
					delete(pending, at)
				}
			}
			return len(b), nil
		}
		if m == erase.NVMeFormat {
			delete(pending, 5<<20) // a format makes every sector readable; this one is read before
		}
		if got, err := run(t.Context(), d, m, true); err != nil || got.Verification == "" {
			t.Errorf("%s: %+v, %v", m, got, err)
		}
	}
}

// TestABadBlockDoesNotKeepTheOthers: all that can be written is zeros, and the erasure is none.
func TestABadBlockDoesNotKeepTheOthers(t *testing.T) {
	t.Parallel()
	const bad = 6<<20 + 64<<10
	d := plain()
	d.OnWrite = func(b []byte, off int64) (int, error) {
		if off <= bad && bad < off+int64(len(b)) {
			return 0, disktest.ErrIO
		}
		return len(b), nil
	}
	_, err := run(t.Context(), d, erase.Overwrite, true)
	if !errors.Is(err, disktest.ErrIO) ||
		!strings.Contains(err.Error(), "1 blocks of 64 KiB could not be written, at 6356992") {
		t.Fatal(err)
	}
	all := make([]byte, size)
	d.Durable(all, 0)
	for i, c := range all {
		if c != 0 && (i < bad || i >= bad+64<<10) {
			t.Fatalf("data at byte %d", i)
		}
	}
}

// TestADiskThatStallsIsGivenUp after its rate, not at once.
func TestADiskThatStallsIsGivenUp(t *testing.T) {
	t.Parallel()
	d := drive{Disk: disktest.New(128 << 20)}
	slow := &slowClock{step: 10 * time.Minute}
	if _, err := erase.Run(t.Context(), erase.Config{Disk: d, Method: erase.Overwrite, Clock: slow}); err == nil ||
		!strings.Contains(err.Error(), "the disk took") || d.Written() > 64<<20 {
		t.Errorf("%v after %d bytes", err, d.Written())
	}
}

// TestADiskThatStallsAtReadingIsGivenUp: all was written, and too little comes back in the time.
func TestADiskThatStallsAtReadingIsGivenUp(t *testing.T) {
	t.Parallel()
	d := drive{Disk: disktest.New(128 << 20)}
	slow, read := &slowClock{}, int64(0)
	d.OnRead = func(b []byte, off int64) error {
		if off >= 8<<20 {
			slow.step = 10 * time.Minute
		}
		read = max(read, off)
		return nil
	}
	got, err := erase.Run(t.Context(), erase.Config{Disk: d, Method: erase.Overwrite, Clock: slow})
	if !errors.Is(err, erase.ErrNotErased) || !strings.Contains(err.Error(), "the disk gave") || read > 64<<20 ||
		got.Verification != "" {
		t.Errorf("%+v, %v after %d bytes", got, err, read)
	}
}

// slowClock moves on by a step whenever it is asked.
type slowClock struct {
	clock.Clock
	now  time.Time
	step time.Duration
}

func (c *slowClock) Now() time.Time {
	c.now = c.now.Add(c.step)
	return c.now
}
