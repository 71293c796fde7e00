package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/internal/gpt"
)

// identity asks for the new system's identity, and fills the state partition with it.
func (w *writer) identity(ctx context.Context) error {
	w.track.begin(StageIdentity, StateSize)
	if w.State == nil {
		_, err := w.Identity(ctx)
		return err
	}
	if err := w.copyState(); err != nil {
		return err
	}
	files, err := w.Identity(ctx)
	if err != nil {
		return err
	}
	if err := w.Fill(ctx, w.stateAt, StateSize, files); err != nil {
		return diskError("fill the state partition: %w", err)
	}
	return w.flush()
}

// customize lets the file systems of the image be changed. Both ends of the disk are zeros meanwhile, and stay so if it
// fails: an image that was changed in part boots nothing.
func (w *writer) customize(ctx context.Context) error {
	if w.Customize == nil {
		return nil
	}
	w.track.begin(StageSystem, 0)
	c, err := w.Customize(ctx, Layout{Partitions: w.table.Partitions(), StateID: w.out.StateID, End: w.stateAt})
	if err != nil {
		return unlessKnown(err)
	}
	w.out.System, w.out.Changes, w.out.Mounts = c.System, c.Changes, c.Mounts
	w.out.Warnings = append(w.out.Warnings, c.Warnings...)
	for number, size := range c.Grown {
		if err := w.table.Resize(number, size); err != nil {
			return notSupported("grow a partition: %w", err)
		}
	}
	if err := w.addVolume(c.Volume); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	return w.fit()
}

// unlessKnown returns an error as a disk's error, unless its kind is a known one.
func unlessKnown(err error) error {
	switch {
	case errors.Is(err, firstboot.ErrSeed):
		return &Error{Reason: baremetalv1.Reason_INVALID_FIELD, err: err}
	case errors.Is(err, firstboot.ErrUnsupported):
		return notSupported("%w", err)
	}
	return err
}

// addVolume writes a further partition right before the state partition, and reads each MiB of it back.
func (w *writer) addVolume(v *Volume) (err error) {
	if v == nil {
		return nil
	}
	defer func() { err = errors.Join(err, v.Data.Close()) }()
	at := w.stateAt - v.Size
	_, err = w.table.Add(gpt.Partition{Name: v.Name, Type: v.Type, ID: gpt.NewGUID(), Offset: at, Size: v.Size})
	if err != nil {
		return tooLarge("add the partition %s: %w", v.Name, err)
	}
	wrote, got := block.Buffer(gpt.HeadSize), block.Buffer(gpt.HeadSize)
	for off := at; off < w.stateAt; off += gpt.HeadSize {
		if _, err := io.ReadFull(v.Data, wrote); err != nil {
			return fmt.Errorf("make the partition %s: %w", v.Name, err)
		}
		if err := w.put(wrote, off); err != nil {
			return err
		}
		if err := get(w.Disk, got, off); err != nil {
			return err
		}
		if !bytes.Equal(got, wrote) {
			return diskError("the partition %s reads back differently at byte %d", v.Name, off)
		}
	}
	return nil
}

func (w *writer) copyState() error {
	src, err := w.State()
	if err != nil {
		return err
	}
	// It was only read; a fault in it has shown already.
	defer src.Close()
	buf := block.Buffer(chunk)
	for off := int64(0); ; off += chunk {
		n, err := io.ReadFull(src, buf)
		switch {
		case errors.Is(err, io.EOF):
			return w.flush()
		case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
			return err
		case off+int64(n) > StateSize:
			return notSupported("the file system for the state partition is larger than %d bytes", StateSize)
		}
		clear(buf[n:])
		padded := (n + block.Alignment - 1) / block.Alignment * block.Alignment
		if err := w.put(buf[:padded], w.stateAt+off); err != nil {
			return err
		}
	}
}

// commit makes the disk bootable. From its first byte on a cancel comes too late, and whatever fails takes both tables
// away again.
func (w *writer) commit(ctx context.Context) error {
	w.track.begin(StageCommit, 0)
	c := Commit{Head: hexSum(w.newHead), Undo: gpt.Undo(w.head, w.newHead), StateID: w.out.StateID,
		System: w.out.System, Changes: w.out.Changes, Mounts: w.out.Mounts}
	if err := w.Committing(ctx, c); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.committing = true
	w.out.Left = LeftUnknown
	if err := w.putEnds(); err != nil {
		return errors.Join(err, w.wipeEnds())
	}
	w.out.Left = LeftImage
	// The kernel's idea of the partitions ends with this boot, which is over soon.
	if err := w.Disk.RereadTable(); err != nil {
		w.out.Warnings = append(w.out.Warnings, err.Error())
	}
	w.track.done()
	return nil
}

// frontSize is what makes the first MiB a disk's beginning: the MBR and the header of the primary table, in sectors of
// up to 4096 bytes.
const frontSize = 8 << 10

// putEnds writes what makes the disk bootable last, and compares both ends with what was meant. Boot code and
// partitions in the first MiB are durable before a table is at either end: firmware takes the backup table too, and a
// loss of power tears a write into sectors.
func (w *writer) putEnds() error {
	type end struct {
		want []byte
		at   int64
	}
	for _, end := range []end{{w.newHead[frontSize:], frontSize}, {w.tail, w.tailAt()}, {w.newHead[:frontSize], 0}} {
		if err := w.put(end.want, end.at); err != nil {
			return err
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
	got := block.Buffer(gpt.HeadSize)
	for _, end := range []end{{w.tail, w.tailAt()}, {w.newHead, 0}} {
		if err := get(w.Disk, got[:len(end.want)], end.at); err != nil {
			return err
		}
		if !bytes.Equal(got[:len(end.want)], end.want) {
			return diskError("the partition table at byte %d reads back differently", end.at)
		}
	}
	w.out.Bytes, w.out.Digest = w.RawSize, w.RawDigest
	return nil
}

// wipeEnds makes both ends zeros and reads them back: firmware also takes the backup table.
func (w *writer) wipeEnds() error {
	w.out.Left = LeftUnknown
	zeros, got := block.Buffer(gpt.HeadSize), block.Buffer(gpt.HeadSize)
	ends := []int64{0, w.tailAt()}
	var errs []error
	for _, at := range ends {
		errs = append(errs, w.put(zeros, at))
	}
	if err := errors.Join(append(errs, w.flush())...); err != nil {
		return err
	}
	for _, at := range ends {
		if err := get(w.Disk, got, at); err != nil {
			return err
		}
		if !bytes.Equal(got, zeros) {
			return diskError("zeros at byte %d read back differently", at)
		}
	}
	w.out.Left = LeftUnbootable
	return nil
}

// digestMatches compares what was read back with what was ordered.
func (w *writer) digestMatches(got []byte) error {
	if bytes.Equal(got, w.RawDigest[:]) {
		return nil
	}
	return mismatch("the image is sha256:%x, ordered was sha256:%x; the disk gives back what was received", got,
		w.RawDigest)
}
