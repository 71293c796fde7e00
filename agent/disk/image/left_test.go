package image_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/internal/gpt"
)

var (
	leftRuns = flag.Int("left-runs", 12, "random writes of TestWhatIsLeftIsTrue")
	leftSeed = flag.Uint64("left-seed", 1, "seed of the first of them")
)

// TestWhatIsLeftIsTrue draws disks and faults: power, input/output errors, lost and changed writes, a discard that
// fails, a cancel. The reported state of the disk must be the one that a full read of its durable content shows.
func TestWhatIsLeftIsTrue(t *testing.T) {
	t.Parallel()
	seen := map[image.Left]int{}
	for i := range uint64(*leftRuns) {
		seed := *leftSeed + i
		r := newRig()
		ctx, cancel := context.WithCancel(t.Context())
		fault := leaveFaults(r, rand.New(rand.NewPCG(seed, 22)), cancel)
		got, err := r.write(ctx, t)
		cancel()
		if (err == nil) != (got.Left == image.LeftImage) {
			t.Errorf("seed %d, %s: %v, and the disk %s", seed, fault, err, got.Left)
		}
		seen[got.Left]++
		if said := got.Left; !trueOf(said, r) {
			t.Errorf("seed %d, %s: it is said that the disk %s (%v)", seed, fault, said, err)
		}
	}
	if *leftRuns >= 100 && len(seen) < 4 {
		t.Errorf("the runs ended in %v alone", seen)
	}
	t.Logf("%v", seen)
}

// leaveFaults draws what goes wrong, and names it.
func leaveFaults(r *rig, rnd *rand.Rand, cancel func()) string {
	r.disk = disktest.New(diskSize + rnd.Int64N(64)<<20)
	r.disk.NoDiscard, r.disk.NoZero, r.disk.Trims = rnd.IntN(3) == 0, rnd.IntN(3) == 0, rnd.IntN(2) == 0
	at := rnd.Int64N(r.disk.Size())
	// Half of the faults are where tables are written.
	if rnd.IntN(2) == 0 {
		at = []int64{0, r.disk.Size() - 1}[rnd.IntN(2)]
	}
	writes, nth := 0, rnd.IntN(14)
	hit := func(b []byte, off int64) bool {
		if off <= at && at < off+int64(len(b)) {
			writes++
			return writes > nth%3
		}
		return false
	}
	switch rnd.IntN(9) {
	case 0:
		r.disk.CutAt, r.disk.Kept, r.disk.Rand = 1+rnd.Int64N(16<<20), disktest.Kept(rnd.IntN(3)), rnd
		return "power"
	case 1:
		r.disk.OnWrite = func(b []byte, off int64) (int, error) {
			if hit(b, off) {
				return 0, disktest.ErrIO
			}
			return len(b), nil
		}
		return "write error"
	case 2:
		r.disk.OnWrite = func(b []byte, off int64) (int, error) {
			if hit(b, off) {
				b[0] ^= 0xff
			}
			return len(b), nil
		}
		return "changed write"
	case 3:
		r.disk.OnRead = func(b []byte, off int64) error {
			if hit(b, off) {
				return disktest.ErrIO
			}
			return nil
		}
		return "read error"
	case 4:
		r.disk.OnFlush = func() error {
			if writes++; writes > nth {
				return disktest.ErrIO
			}
			return nil
		}
		return "flush error"
	case 5:
		r.disk.OnWrite = func(b []byte, _ int64) (int, error) {
			if writes++; writes > nth {
				cancel()
			}
			return len(b), nil
		}
		return "cancel"
	case 6:
		r.job.Begin = func(context.Context) error { return errors.New("no") }
		return "no grant"
	case 7:
		r.job.RawSize += 512
		return "wrong size"
	}
	r.disk.OnDiscard = func(int64, int64) error { return disktest.ErrIO }
	return "discard error"
}

// trueOf compares the reported state with the durable content.
func trueOf(said image.Left, r *rig) bool {
	head, tail := make([]byte, gpt.HeadSize), make([]byte, gpt.TailSize)
	r.disk.Durable(head, 0)
	r.disk.Durable(tail, r.disk.Size()-gpt.TailSize)
	switch said {
	case image.LeftAsItWas:
		return len(r.disk.Writes()) == 0
	case image.LeftUnbootable:
		return bytes.Equal(head, make([]byte, len(head))) && bytes.Equal(tail, make([]byte, len(tail)))
	case image.LeftImage:
		return image.Check(context.Background(), r.disk.PowerOn(), rawSize, r.job.RawDigest, r.commit) == nil
	}
	return true
}

// TestADiscardThatFailsIsNoFailedWrite: then the zeros are written, and that is said.
func TestADiscardThatFailsIsNoFailedWrite(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.disk.OnDiscard = func(int64, int64) error { return disktest.ErrIO }
	got, err := r.write(t.Context(), t)
	if err != nil || got.Zeroed || len(got.Warnings) != 1 || got.Left != image.LeftImage {
		t.Errorf("%+v, %v", got, err)
	}
	mustBoot(t, r, got)
}

// TestADiskThatWasNotTouchedIsSaidToBeAsItWas: an image that ends early is found out before the first write.
func TestADiskThatWasNotTouchedIsSaidToBeAsItWas(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.job.Open = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw()[:1000])), nil }
	got, err := r.write(t.Context(), t)
	if err == nil || errors.Is(err, disktest.ErrIO) || got.Left != image.LeftAsItWas || len(r.disk.Writes()) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
