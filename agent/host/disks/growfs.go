package disks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests that grow a mounted file system (fs/ext4/ext4.h, linux/btrfs.h, fs/xfs/libxfs/xfs_fs.h of Linux).
const (
	ext4ResizeFS    = 0x40086610 // EXT4_IOC_RESIZE_FS, _IOW('f', 16, __u64): blocks
	btrfsResize     = 0x50009403 // BTRFS_IOC_RESIZE, _IOW(0x94, 3, struct btrfs_ioctl_vol_args)
	xfsGeometryV1   = 0x80705864 // XFS_IOC_FSGEOMETRY_V1, _IOR('X', 100, struct xfs_fsop_geom_v1)
	xfsGrowFSData   = 0x4010586e // XFS_IOC_FSGROWFSDATA, _IOW('X', 110, struct xfs_growfs_data)
	btrfsArgsSize   = 4096       // an __s64 and a name
	xfsGeometrySize = 112
)

// grow makes the mounted file system fill its device of size bytes. The kernel does all of it; no program is needed.
func grow(dir, kind string, size int64) (err error) {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	switch kind {
	case "ext4":
		err = growExt4(f, size)
	case "btrfs":
		args := make([]byte, btrfsArgsSize)
		copy(args[8:], "1:max")
		err = control(f, btrfsResize, unsafe.Pointer(&args[0])) //nolint:gosec // the kernel reads the structure
	case "xfs":
		err = growXFS(f, size)
	default:
		err = errors.ErrUnsupported
	}
	if err != nil {
		return fmt.Errorf("grow %s to %d MiB: %w", kind, size>>20, err)
	}
	return nil
}

func growExt4(f *os.File, size int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	blocks := uint64(size / st.Bsize)
	return control(f, ext4ResizeFS, unsafe.Pointer(&blocks)) //nolint:gosec // the kernel reads eight bytes
}

// growXFS keeps the share of inodes, which the request sets as well.
func growXFS(f *os.File, size int64) error {
	geometry := make([]byte, xfsGeometrySize)
	err := control(f, xfsGeometryV1, unsafe.Pointer(&geometry[0])) //nolint:gosec // the kernel writes the structure
	if err != nil {
		return err
	}
	blockSize := binary.NativeEndian.Uint32(geometry)
	args := make([]byte, 16)
	binary.NativeEndian.PutUint64(args, uint64(size)/uint64(blockSize))
	copy(args[8:12], geometry[28:32])                          // imaxpct, the eighth word
	return control(f, xfsGrowFSData, unsafe.Pointer(&args[0])) //nolint:gosec // the kernel reads the structure
}

func control(f *os.File, request uintptr, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(arg))
	if errno != 0 {
		return errno
	}
	return nil
}
