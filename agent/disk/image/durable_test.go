package image_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"testing"

	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/internal/gpt"
)

// TestNoTableBeforeTheBootCode: the power is lost at a write of the commit, and the disk keeps some sectors of what was
// not flushed. Where a table is at either end, the boot code and the partitions of the first MiB are there too.
func TestNoTableBeforeTheBootCode(t *testing.T) {
	t.Parallel()
	tables := 0
	const entriesEnd = 34 * 512
	for seed := range uint64(16) {
		r := newRig()
		r.disk.Kept, r.disk.Rand = disktest.KeepSome, rand.New(rand.NewPCG(seed, 1))
		own := bytes.Clone(raw())
		fillBytes(own[512<<10 : 1<<20]) // a BIOS boot partition within the first MiB
		var err error
		if r.file, err = disktest.Pack(own); err != nil {
			t.Fatal(err)
		}
		r.job.RawDigest = sha256.Sum256(own)
		r.job.Committing = func(context.Context, image.Commit) error {
			at := int64(seed) * (2 << 20) / 16
			if seed%2 == 0 { // within the last sectors
				at = 2<<20 - 4096 + int64(seed)*100
			}
			r.disk.CutAt = r.disk.Written() + 1 + at
			return nil
		}
		got, err := r.write(t.Context(), t)
		if err == nil {
			t.Fatalf("%+v", got)
		}
		table, head := primary(r.disk)
		if table == nil && !hasBackup(r.disk) {
			continue
		}
		tables++
		if !bytes.Equal(head[entriesEnd:], own[entriesEnd:gpt.HeadSize]) {
			t.Errorf("seed %d: a table is there (at the beginning: %t), and the rest of the first MiB is not", seed,
				table != nil)
		}
	}
	if tables == 0 {
		t.Error("no run came to a table")
	}
}

func fillBytes(b []byte) {
	_, _ = rand.NewChaCha8([32]byte{9}).Read(b) // never fails
}

// TestWhatIsCheckedIsDurable: the agent dies before its last flush, and the one after it finds all of the image in the
// disk's cache. Its result must be true after a loss of power too.
func TestWhatIsCheckedIsDurable(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.job.Committing = func(_ context.Context, c image.Commit) error {
		r.commit = c
		flushes := 0
		r.disk.OnFlush = func() error {
			if flushes++; flushes >= 3 { // that of the first sectors
				return disktest.ErrIO
			}
			return nil
		}
		return nil
	}
	alive := true
	r.disk.OnWrite = func(b []byte, off int64) (int, error) {
		if r.commit.Head != "" && off == 0 && b[511] == 0 { // no agent is left to wipe the ends again
			alive = false
		}
		if !alive {
			return 0, disktest.ErrIO
		}
		return len(b), nil
	}
	if got, err := r.write(t.Context(), t); err == nil || alive {
		t.Fatalf("%+v", got)
	}
	r.disk.OnFlush, r.disk.OnWrite = nil, nil
	if err := image.Check(t.Context(), r.disk, rawSize, r.job.RawDigest, r.commit); err != nil {
		t.Fatal(err)
	}
	r.disk.LosePower()
	if err := image.Check(t.Context(), r.disk, rawSize, r.job.RawDigest, r.commit); err != nil {
		t.Errorf("after a loss of power: %v", err)
	}
}
