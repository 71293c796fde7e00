package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/gpt"
)

// writer is one Write.
type writer struct {
	Job
	raw     io.ReadCloser
	head    []byte // the image's first MiB
	table   *gpt.Table
	newHead []byte // the same with the state partition in its table
	tail    []byte // the disk's last MiB
	stateAt int64
	// committing is set once a partition table may be on the disk.
	committing bool
	sums       []uint64 // of each chunk as it was written
	track      tracker
	out        Evidence
}

// Write does all of it. An error is an *Error or the cause of ctx's end. After an error the disk holds no image that
// boots, if it could still be written: see Evidence.Left.
func Write(ctx context.Context, j Job) (Evidence, error) {
	w := &writer{Job: j, track: newTracker(j)}
	begun := j.Clock.Now()
	err := w.run(ctx)
	w.out.Total = j.Clock.Now().Sub(begun)
	if err != nil && ctx.Err() != nil && !w.committing {
		return w.out, context.Cause(ctx)
	}
	return w.out, orUnexplained(err)
}

func (w *writer) run(ctx context.Context) (err error) {
	if err := w.check(ctx); err != nil {
		return err
	}
	defer func() {
		if closing := w.raw.Close(); err != nil {
			err = errors.Join(err, closing)
		}
	}()
	if w.Begin != nil {
		if err := w.Begin(ctx); err != nil {
			return err
		}
	}
	for _, stage := range []func(context.Context) error{w.zeroEnds, w.discard, w.copy, w.verify, w.identity, w.customize} {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := stage(ctx); err != nil {
			return err
		}
	}
	return w.commit(ctx)
}

// check finds out whatever can be known before anything is written.
func (w *writer) check(ctx context.Context) error {
	w.track.begin(StageCheck, 0)
	size := w.Disk.Size()
	switch {
	case w.RawSize < gpt.HeadSize:
		return notSupported("an image of %d bytes has no room for a partition table", w.RawSize)
	case size < w.MinimumDisk:
		return tooLarge("the disk has %d bytes, the image asks for %d", size, w.MinimumDisk)
	case size < w.RawSize+disk.Reserve:
		return tooLarge("the disk has %d bytes; the image of %d needs %d with room for the state partition",
			size, w.RawSize, w.RawSize+disk.Reserve)
	}
	var err error
	if w.raw, err = w.Open(ctx); err != nil {
		return err
	}
	if err := w.plan(); err != nil {
		return errors.Join(err, w.raw.Close())
	}
	if err := judgeRoot(ctx, w.Open, w.table.Partitions(), w.Judge); err != nil {
		return errors.Join(err, w.raw.Close())
	}
	return nil
}

// plan reads the first MiB and makes of it what the disk's ends will be.
func (w *writer) plan() error {
	w.head = block.Buffer(gpt.HeadSize)
	if _, err := io.ReadFull(w.raw, w.head); err != nil {
		return w.ended(0, err)
	}
	table, err := tableOf(w.head, w.Disk.Sector())
	if err != nil {
		return err
	}
	if err := whole(table, w.RawSize); err != nil {
		return err
	}
	if err := clash(table, w.Others); err != nil {
		return err
	}
	w.table = table
	if err := w.addState(); err != nil {
		return err
	}
	return w.fit()
}

// addState adds the state partition to the table, where there is one.
func (w *writer) addState() error {
	if w.State == nil {
		w.stateAt = gpt.Place(w.Disk.Size(), 0)
		return nil
	}
	id := gpt.NewGUID()
	w.stateAt, w.out.StateID = gpt.Place(w.Disk.Size(), StateSize), id.String()
	_, err := w.table.Add(gpt.Partition{Name: StateName, Type: gpt.LinuxData, ID: id, Offset: w.stateAt, Size: StateSize})
	if err != nil {
		return notSupported("add the state partition to the image: %w", err)
	}
	return nil
}

// fit makes the disk's ends out of the image's first MiB and the table as it is now.
func (w *writer) fit() error {
	w.newHead = block.Buffer(gpt.HeadSize)
	copy(w.newHead, w.head)
	tail, err := w.table.Fit(w.newHead, w.Disk.Size())
	if err != nil {
		return tooLarge("fit the partition table to the disk: %w", err)
	}
	w.tail = block.Buffer(gpt.TailSize)
	copy(w.tail, tail)
	return nil
}

// tableOf reads the partition table in the first MiB of an image, for a disk with sectors of so many bytes.
func tableOf(head []byte, sector int) (*gpt.Table, error) {
	table, err := gpt.Parse(head, sector)
	if other := otherFormat(head); err != nil && other != "" {
		return nil, notSupported("%s", other)
	}
	if err != nil {
		return nil, notSupported("the image has %w, which the disk's sectors of %d bytes ask for", err, sector)
	}
	return table, nil
}

// Probe reads the first MiB of an image and returns the error that Write would return for it. The image must be fetched
// and unpacked, and have a partition table for the sector size in bytes. It must take the seed, and its root must pass
// the judge. It changes nothing. Its errors are *Error, or the cause of ctx's end.
func Probe(
	ctx context.Context, s Source, format Format, sector int, seed firstboot.For,
	others func() (map[string][]gpt.Partition, error), judge Judge,
) (err error) {
	raw, err := Open(ctx, s, format)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	head := make([]byte, gpt.HeadSize)
	if n, err := io.ReadFull(raw, head); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return mismatch("the image ends at byte %d", n)
	} else if err != nil {
		return orUnexplained(err)
	}
	table, err := tableOf(head, sector)
	if err != nil {
		return err
	}
	if err := seed.Fits(table.DiskID(), table.Partitions()); err != nil {
		return unlessKnown(err)
	}
	if err := clash(table, others); err != nil {
		return err
	}
	open := func(ctx context.Context) (io.ReadCloser, error) { return Open(ctx, s, format) }
	return judgeRoot(ctx, open, table.Partitions(), judge)
}

// clash refuses an image when another disk of the machine has a partition that the new system would take for its own.
// That is one with the PARTUUID of a partition of the image, as in another installation of it, or an old state
// partition. Boot loaders and file system tables find both by name, in any order.
func clash(table *gpt.Table, others func() (map[string][]gpt.Partition, error)) error {
	if others == nil {
		return nil
	}
	all, err := others()
	if err != nil {
		return &Error{Reason: baremetalv1.Reason_EXECUTION_FAILED, Retryable: true, err: err}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, p := range all[name] {
			same := slices.IndexFunc(table.Partitions(), func(own gpt.Partition) bool { return own.ID == p.ID })
			switch {
			case same >= 0:
				return otherInstallation(
					"%s has an installation of this image: its partition %d has the PARTUUID %s, as partition %d of the "+
						"image; erase that disk first, or the machine may start from it", name, p.Number, p.ID,
					table.Partitions()[same].Number)
			case p.Name == StateName:
				return otherInstallation(
					"%s has an old installation: its partition %d is called %s, and the new system could take its identity; "+
						"erase that disk first", name, p.Number, StateName)
			}
		}
	}
	return nil
}

// ended returns why the stream ended at a byte before the image's last.
func (w *writer) ended(at int64, err error) error {
	var known *Error
	if !errors.As(err, &known) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return mismatch("the image ends at byte %d of %d", at, w.RawSize)
	}
	return err
}

// tailAt is where the last MiB of the disk begins.
func (w *writer) tailAt() int64 { return w.Disk.Size() - gpt.TailSize }

// put writes all of b, whatever the disk makes of it.
func (w *writer) put(b []byte, off int64) error {
	n, err := w.Disk.WriteAt(b, off)
	if err == nil && n != len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return diskError("write %d bytes at %d: %w", len(b), off, err)
	}
	return nil
}

func (w *writer) flush() error {
	if err := w.Disk.Flush(); err != nil {
		return diskError("flush: %w", err)
	}
	return nil
}

// get reads exactly len(b) bytes back.
func get(d Disk, b []byte, off int64) error {
	n, err := d.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return diskError("read %d bytes at %d: %w", len(b), off, err)
}

// zeroEnds makes both ends zeros, so that no old table is found, and reads them back.
func (w *writer) zeroEnds(context.Context) error {
	w.track.begin(StageZero, w.Disk.Size())
	return w.wipeEnds()
}

// discard discards the rest of the disk, and then has the part that the image covers zeroed. That a disk does neither
// is no failed write: then zeros are written. Zeroing without discard is not tried: it takes such disks as long as
// writing.
func (w *writer) discard(ctx context.Context) error {
	err := spans(ctx, gpt.HeadSize, w.tailAt(), func(off, n int64) error {
		w.track.step(off)
		return w.Disk.Discard(off, n)
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, block.ErrUnsupported):
		return nil
	case err != nil:
		w.out.Warnings = append(w.out.Warnings,
			fmt.Sprintf("the disk failed to discard its blocks, and zeros were written: %v", err))
		return nil
	}
	// Whatever an error of this is, the answer is to write zeros.
	w.out.Zeroed = spans(ctx, gpt.HeadSize, w.imageEnd(), w.Disk.Zero) == nil
	return nil
}

// span is how much is discarded by one call, so that a cancel is heard.
const span = 1 << 30

func spans(ctx context.Context, from, to int64, do func(off, n int64) error) error {
	for off := from; off < to; off += span {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := do(off, min(span, to-off)); err != nil {
			return err
		}
	}
	return nil
}

// imageEnd is where the last block of the image ends.
func (w *writer) imageEnd() int64 {
	return (w.RawSize + block.Alignment - 1) / block.Alignment * block.Alignment
}
