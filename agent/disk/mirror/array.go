package mirror

import (
	"context"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/disk/block"
)

// Requests of the kernel's md driver (include/uapi/linux/raid/md_u.h), which are the same on amd64 and arm64.
const (
	setArrayInfo = 0x40480923 // SET_ARRAY_INFO, _IOW(9, 0x23, mdu_array_info_t)
	getArrayInfo = 0x80480911 // GET_ARRAY_INFO
	addNewDisk   = 0x40140921 // ADD_NEW_DISK, _IOW(9, 0x21, mdu_disk_info_t)
	runArray     = 0x400c0930 // RUN_ARRAY, _IOW(9, 0x30, mdu_param_t)
	stopArray    = 0x00000932 // STOP_ARRAY, _IO(9, 0x32)

	arrayClean = 1 << 0              // MD_SB_CLEAN of mdu_array_info_t.state
	diskInStep = 1<<1 | 1<<2         // MD_DISK_ACTIVE and MD_DISK_SYNC of mdu_disk_info_t.state
	arrayName  = "md127"             // the number that mdadm takes first
	Node       = "/dev/" + arrayName // Node is the device of the array, while there is one.
	newArray   = "/sys/module/md_mod/parameters/new_array"
)

// arrayInfo is mdu_array_info_t.
type arrayInfo struct {
	major, minor, patch int32
	ctime               uint32
	level, size, nr     int32
	disks, number       int32
	notPersistent       int32
	utime               uint32
	state               int32
	active, working     int32
	failed, spare       int32
	layout, chunk       int32
}

// diskInfo is mdu_disk_info_t.
type diskInfo struct{ number, major, minor, role, state int32 }

// With lets the kernel write two devices as one for as long as fn runs, without superblocks: fn is given the device of
// the array. Both begin in step, and With fails unless both have taken every write. The driver raid1 must be there, and
// the devices must be unclaimed.
func With(ctx context.Context, devices [2]string, fn func(array string) error) (err error) {
	if err := os.WriteFile(newArray, []byte(arrayName), 0o200); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make an array: %w", err)
	}
	if err := block.WaitFor(ctx, Node); err != nil {
		return err
	}
	f, err := os.OpenFile(Node, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open array: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := assemble(f, devices); err != nil {
		return errors.Join(err, stop(f))
	}
	err = fn(Node)
	var info arrayInfo
	if ask := request(f, getArrayInfo, unsafe.Pointer(&info)); ask != nil { //nolint:gosec // the kernel writes it
		err = errors.Join(err, fmt.Errorf("read the array's state: %w", ask))
	} else if info.active != 2 || info.failed != 0 {
		err = errors.Join(err, fmt.Errorf("%d disks of the mirror have failed", 2-info.active))
	}
	return errors.Join(err, stop(f))
}

func assemble(f *os.File, devices [2]string) error {
	// A size of 0 is that of the smaller device.
	info := arrayInfo{minor: 90, level: 1, nr: 2, disks: 2, notPersistent: 1, state: arrayClean, active: 2, working: 2}
	//nolint:gosec // the kernel reads the structure
	if err := request(f, setArrayInfo, unsafe.Pointer(&info)); err != nil {
		return fmt.Errorf("begin an array: %w", err)
	}
	for i, path := range devices {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return fmt.Errorf("look at %s: %w", path, err)
		}
		d := diskInfo{
			number: int32(i), role: int32(i), state: diskInStep,
			major: int32(unix.Major(st.Rdev)), minor: int32(unix.Minor(st.Rdev)),
		}
		//nolint:gosec // the kernel reads the structure
		if err := request(f, addNewDisk, unsafe.Pointer(&d)); err != nil {
			return fmt.Errorf("add %s to the array: %w", path, err)
		}
	}
	if err := request(f, runArray, nil); err != nil {
		return fmt.Errorf("start the array: %w", err)
	}
	return nil
}

// stop ends the array, which another process may still have open for a moment.
func stop(f *os.File) error {
	if err := block.Patiently(func() error { return request(f, stopArray, nil) }); err != nil {
		return fmt.Errorf("stop the array: %w", err)
	}
	return nil
}

// Stop ends the array with this node, which a process has left behind that was killed. Where there is none it does
// nothing.
func Stop(node string) error {
	f, err := os.OpenFile(node, os.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open array: %w", err)
	}
	err = stop(f)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		err = nil // it is stopped
	}
	return errors.Join(err, f.Close())
}

func request(f *os.File, number uintptr, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), number, uintptr(arg))
	if errno != 0 {
		return errno
	}
	return nil
}
