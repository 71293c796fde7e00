// Package block reads and writes a disk past the page cache.
//
// ReadAt reads from the device and not from memory, so that its result is evidence of the device's content. Data of
// WriteAt is durable after Flush. Offsets and lengths are multiples of Alignment, and buffers are those of Buffer.
package block

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Alignment of offsets, lengths and buffers. It is that of the largest sectors that Linux supports.
const Alignment = 4096

// ErrUnsupported is returned when the device has no such operation.
var ErrUnsupported = errors.New("not supported by the device")

// Disk is an open disk, or a file that stands for one.
type Disk struct {
	f      *os.File
	claim  *os.File // open exclusively, where the disk is a device that is written; see Part
	size   int64
	sector int
	device bool
}

// Open opens a block device or a regular file. With write it is opened exclusively: a device that is mountedor was
// opened exclusively elsewhere is refused with EBUSY.
func Open(path string, write bool) (*Disk, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open disk: %w", err)
	}
	device := info.Mode()&fs.ModeDevice != 0 && info.Mode()&fs.ModeCharDevice == 0
	if !device && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open disk: %s is neither a block device nor a file", path)
	}
	mode := os.O_RDONLY
	if write {
		mode = os.O_RDWR
	}
	d := &Disk{device: device, sector: 512, size: info.Size()}
	if d.f, err = os.OpenFile(path, mode|unix.O_DIRECT|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open disk: %w", err)
	}
	if write {
		err = d.hold()
	}
	if err := errors.Join(err, d.measure()); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// hold claims a device. For that O_EXCL needs no O_CREAT (open(2)).
func (d *Disk) hold() (err error) {
	if !d.device {
		return nil
	}
	if d.claim, err = os.OpenFile(d.f.Name(), os.O_RDONLY|os.O_EXCL|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("claim disk: %w", err)
	}
	return nil
}

// release closes the exclusive claim, which also keeps others from mounting parts of the disk.
func (d *Disk) release() error {
	if d.claim == nil {
		return nil
	}
	err := d.claim.Close()
	d.claim = nil
	return err
}

func (d *Disk) measure() error {
	if !d.device {
		return nil
	}
	sector, err := unix.IoctlGetInt(int(d.f.Fd()), unix.BLKSSZGET)
	if err != nil {
		return fmt.Errorf("read sector size: %w", err)
	}
	var size uint64
	if err := d.ioctl(unix.BLKGETSIZE64,
		unsafe.Pointer(&size)); err != nil { //nolint:gosec // the kernel writes eight bytes
		return fmt.Errorf("read size: %w", err)
	}
	if sector > Alignment {
		return fmt.Errorf("the disk has sectors of %d bytes: %w", sector, ErrUnsupported)
	}
	d.sector, d.size = sector, int64(size)
	return nil
}

// Unclaimed releases the claim while fn runs, since the kernel counts it as another holder.
func (d *Disk) Unclaimed(fn func() error) (err error) {
	if d.claim == nil {
		return fn()
	}
	if err := d.release(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.hold()) }()
	return fn()
}

// Size in bytes.
func (d *Disk) Size() int64 { return d.size }

// Sector is the size of a logical block, in bytes.
func (d *Disk) Sector() int { return d.sector }

// blkGetDiskSeq is BLKGETDISKSEQ of linux/fs.h, _IOR(0x12, 128, __u64).
const blkGetDiskSeq = 0x80081280

// Seq returns the kernel's number of the medium that is open: see disk.Device.Seqs. 0 is unknown.
func (d *Disk) Seq() uint64 {
	var seq uint64
	if !d.device || d.ioctl(blkGetDiskSeq, unsafe.Pointer(&seq)) != nil { //nolint:gosec // the kernel writes eight bytes
		return 0
	}
	return seq
}

// ReadAt reads from the device.
func (d *Disk) ReadAt(b []byte, off int64) (int, error) { return d.f.ReadAt(b, off) }

// WriteAt writes to the device, whose own cache may still hold it: see Flush.
func (d *Disk) WriteAt(b []byte, off int64) (int, error) { return d.f.WriteAt(b, off) }

// Flush returns when all that was written is durable.
func (d *Disk) Flush() error { return d.f.Sync() }

// Close closes it.
func (d *Disk) Close() error { return errors.Join(d.release(), d.f.Close()) }

// Fd is for system calls that this package does not make.
func (d *Disk) Fd() uintptr { return d.f.Fd() }

// Discard notifies the device that a range is no longer used. It does not determine the content that is read
// afterwards.
func (d *Disk) Discard(off, n int64) error {
	if !d.device {
		return d.Zero(off, n)
	}
	span := [2]uint64{uint64(off), uint64(n)}
	return unsupported(d.ioctl(unix.BLKDISCARD, unsafe.Pointer(&span))) //nolint:gosec // the kernel reads two words
}

// Zero makes a range read as zeros, by an order to the device and not by writing: ErrUnsupported where there is no such
// order. On a block device the kernel returns an error instead of a fallback that does not guarantee zeros. Source:
// blkdev_fallocate and BLKDEV_ZERO_NOFALLBACK in the kernel's block/fops.c.
func (d *Disk) Zero(off, n int64) error {
	return unsupported(unix.Fallocate(int(d.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n))
}

// RereadTable makes the kernel read the partition table again. A file has none to read.
func (d *Disk) RereadTable() error {
	if !d.device {
		return nil
	}
	return d.Unclaimed(func() error {
		if err := d.ioctl(unix.BLKRRPART, nil); err != nil {
			return fmt.Errorf("read the partition table again: %w", err)
		}
		return nil
	})
}

func (d *Disk) ioctl(request uintptr, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.f.Fd(), request, uintptr(arg))
	if errno != 0 {
		return errno
	}
	return nil
}

func unsupported(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTTY) ||
		errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// Buffer returns n bytes that O_DIRECT accepts: they begin at a page.
func Buffer(n int) []byte {
	b := make([]byte, n+Alignment)
	//nolint:gosec // only its address is looked at
	skip := (Alignment - int(uintptr(unsafe.Pointer(&b[0]))%Alignment)) % Alignment
	return b[skip : skip+n : skip+n]
}
