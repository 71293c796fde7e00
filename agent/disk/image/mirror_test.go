package image_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/disk/mirror"
	"github.com/ingot-metal/ingot/internal/gpt"
)

// mirrored is a write to two disks.
type mirrored struct {
	*rig
	disks [2]*disktest.Disk
	both  *mirror.Disk
	// cut is the operation of the commit, from 1, at which the power of both is lost; 0: never.
	cut, done int
	mu        sync.Mutex
}

func newMirrored(t *testing.T, seed uint64) *mirrored {
	t.Helper()
	m := &mirrored{rig: newRig(), disks: [2]*disktest.Disk{disktest.New(diskSize + 2<<20), disktest.New(diskSize + 9<<20)}}
	for i, d := range m.disks {
		d.Kept, d.Rand = disktest.KeepSome, rand.New(rand.NewPCG(seed, uint64(i)))
	}
	var err error
	if m.both, err = mirror.New(m.disks[0], m.disks[1]); err != nil {
		t.Fatal(err)
	}
	m.to = m.both
	m.job.Begin = func(context.Context) error { return m.both.Clear() }
	m.job.Committing = func(_ context.Context, c image.Commit) error {
		m.commit = c
		for _, d := range m.disks {
			d.OnWrite = func(b []byte, _ int64) (int, error) { return len(b), m.operation() }
			d.OnFlush = m.operation
		}
		return m.both.Label(time.Now())
	}
	return m
}

// operation counts, and takes both disks' power at the one that was chosen.
func (m *mirrored) operation() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.done++; m.cut > 0 && m.done >= m.cut {
		return disktest.ErrPower
	}
	return nil
}

func (m *mirrored) run(t *testing.T) (image.Evidence, error) {
	t.Helper()
	return m.write(t.Context(), t)
}

// TestAMirrorIsNeverBootableInPart: the power of both disks is lost at each operation of the commit. Where either has a
// partition table by then, it has the whole image, and both are known to be a mirror.
func TestAMirrorIsNeverBootableInPart(t *testing.T) {
	t.Parallel()
	m := newMirrored(t, 0)
	if got, err := m.run(t); err != nil || got.Left != image.LeftImage {
		t.Fatalf("%+v, %v", got, err)
	}
	all, tables := m.done, 0
	for _, d := range m.disks {
		if table, _ := primary(d); table == nil || !holdsImage(d) {
			t.Error("a disk does not boot")
		}
	}
	if err := image.Check(t.Context(), m.both, rawSize, m.job.RawDigest, m.commit); err != nil {
		t.Error(err)
	}
	for cut := 1; cut <= all; cut++ {
		m := newMirrored(t, uint64(cut))
		m.cut = cut
		if got, err := m.run(t); err == nil || got.Left == image.LeftImage {
			t.Errorf("cut at %d: %+v, %v", cut, got, err)
		}
		after := [2]*disktest.Disk{}
		for i, d := range m.disks {
			d.OnWrite, d.OnFlush = nil, nil
			d.LosePower()
			after[i] = d.PowerOn()
		}
		both, err := mirror.New(after[0], after[1])
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range after {
			head := make([]byte, gpt.HeadSize)
			d.Durable(head, 0)
			table, err := gpt.Parse(head, d.Sector())
			backup := make([]byte, 8)
			d.Durable(backup, both.Size()-512)
			if err != nil && !bytes.Equal(backup, []byte("EFI PART")) {
				continue
			}
			tables++
			if !holdsImage(d) {
				t.Errorf("cut at %d: disk %d has a table (at its beginning: %v) and not the image", cut, i, table != nil)
			}
			if err := both.Check(); err != nil {
				t.Errorf("cut at %d: disk %d has a table: %v", cut, i, err)
			}
		}
	}
	if tables < 2 || all < 14 {
		t.Errorf("%d operations, %d tables", all, tables)
	}
	t.Logf("%d operations, %d tables after them", all, tables)
}
