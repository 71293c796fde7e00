package block

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/clock"
)

// blkpg values and structures of linux/blkpg.h.
const (
	blkpgAddPartition = 1
	blkpgDelPartition = 2
)

type blkpgPartition struct {
	start, length int64
	number        int32
	_             [2][64]byte // names that the kernel takes no notice of
	_             [4]byte
}

type blkpgIoctlArg struct {
	op, flags, datalen int32
	_                  [4]byte
	data               *blkpgPartition
}

func (d *Disk) blkpg(op int32, p blkpgPartition) error {
	arg := blkpgIoctlArg{op: op, datalen: int32(unsafe.Sizeof(p)), data: &p}
	return d.ioctl(unix.BLKPG, unsafe.Pointer(&arg)) //nolint:gosec // the structures are those of linux/blkpg.h
}

// spareNumber of a partition is above what an image has.
const spareNumber = 100

// nodeTimeout is how long the kernel may take to make the node of a partition.
const nodeTimeout = 5 * time.Second

// Part makes a part of a block device a device of its own for as long as fn runs, without a partition table. The claim
// on the disk is given up for that time, because it would keep fn from mounting the part.
func (d *Disk) Part(ctx context.Context, off, n int64, fn func(path string) error) error {
	if !d.device {
		return fmt.Errorf("make a partition of a file: %w", ErrUnsupported)
	}
	return d.Unclaimed(func() error { return d.part(ctx, off, n, fn) })
}

func (d *Disk) part(ctx context.Context, off, n int64, fn func(path string) error) (err error) {
	p := blkpgPartition{start: off, length: n, number: spareNumber}
	if err := d.addPartition(p); err != nil {
		return fmt.Errorf("add a partition of %d bytes at %d: %w", n, off, err)
	}
	defer func() {
		if del := Patiently(func() error { return d.blkpg(blkpgDelPartition, p) }); del != nil {
			err = errors.Join(err, fmt.Errorf("remove the partition again: %w", del))
		}
	}()
	path := partitionPath(d.f.Name(), spareNumber)
	if err := WaitFor(ctx, path); err != nil {
		return err
	}
	return fn(path)
}

// addPartition lets the kernel forget the partitions that the disk had before, if they are in the way: their table was
// overwritten, and the kernel has not read it again.
func (d *Disk) addPartition(p blkpgPartition) error {
	err := d.blkpg(blkpgAddPartition, p)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	if err := Patiently(func() error { return d.ioctl(unix.BLKRRPART, nil) }); err != nil {
		return fmt.Errorf("forget the partitions that were there: %w", err)
	}
	return d.blkpg(blkpgAddPartition, p)
}

// Patiently repeats fn for a while when it fails with EBUSY. A process that is just being started may hold a copy of
// any open file. O_CLOEXEC takes effect at exec(2), not at fork(2).
func Patiently(fn func() error) error {
	limit := clock.Real().Now().Add(nodeTimeout)
	for {
		err := fn()
		if !errors.Is(err, unix.EBUSY) || clock.Real().Now().After(limit) {
			return err
		}
		<-clock.Real().After(20 * time.Millisecond)
	}
}

// partitionPath follows the kernel's disk_name: a p goes between a disk whose name ends in a digit and the number.
func partitionPath(disk string, number int) string {
	if target, err := filepath.EvalSymlinks(disk); err == nil {
		disk = target
	}
	p := ""
	if strings.ContainsRune("0123456789", rune(disk[len(disk)-1])) {
		p = "p"
	}
	return fmt.Sprintf("%s%s%d", disk, p, number)
}

// WaitFor waits for the kernel to make a node.
func WaitFor(ctx context.Context, path string) error {
	limit := clock.Real().Now().Add(nodeTimeout)
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		} else if clock.Real().Now().After(limit) {
			return fmt.Errorf("wait for %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-clock.Real().After(10 * time.Millisecond):
		}
	}
}
