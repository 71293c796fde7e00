package disks

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/erase"
)

// Ioctls of linux/nvme_ioctl.h and scsi/sg.h.
const (
	nvmeIoctlID       = 0x4e40     // _IO('N', 0x40)
	nvmeIoctlAdminCmd = 0xc0484e41 // _IOWR('N', 0x41, struct nvme_admin_cmd)
	sgIO              = 0x2285

	sgToDevice   = -2
	sgFromDevice = -3
	sgNone       = -1
)

// nvmePassthru is struct nvme_passthru_cmd.
type nvmePassthru struct {
	opcode, flags         uint8
	_                     uint16
	nsid                  uint32
	_                     [2]uint32
	metadata, addr        uint64
	metadataLen, dataLen  uint32
	cdw10, cdw11          uint32
	_                     [4]uint32
	timeoutMs, resultWord uint32
}

type nvmeQueue struct{ d *block.Disk }

// Namespace implements erase.AdminQueue.
func (q nvmeQueue) Namespace() (uint32, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, q.d.Fd(), nvmeIoctlID, 0)
	if errno != 0 {
		return 0, fmt.Errorf("ask for the namespace: %w", errno)
	}
	return uint32(n), nil
}

// Admin implements erase.AdminQueue.
func (q nvmeQueue) Admin(c erase.AdminCommand) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	cmd := nvmePassthru{
		opcode: c.Opcode, nsid: c.NSID, cdw10: c.CDW10, cdw11: c.CDW11, timeoutMs: uint32(c.Timeout.Milliseconds()),
		dataLen: uint32(len(c.Data)),
	}
	if len(c.Data) > 0 {
		pin.Pin(&c.Data[0])
		cmd.addr = uint64(uintptr(unsafe.Pointer(&c.Data[0]))) //nolint:gosec // pinned for the time of the call
	}
	status, _, errno := unix.Syscall(unix.SYS_IOCTL, q.d.Fd(), nvmeIoctlAdminCmd,
		uintptr(unsafe.Pointer(&cmd))) //nolint:gosec // as above
	runtime.KeepAlive(c.Data)
	switch {
	case errno != 0:
		return errno
	case status != 0:
		return statusError("NVMe status 0x%x", status)
	}
	return nil
}

// sgHeader is struct sg_io_hdr on a 64-bit machine.
type sgHeader struct {
	interfaceID, direction int32
	cmdLen, maxSense       uint8
	iovecCount             uint16
	dataLen                uint32
	data, cmd, sense       uintptr
	timeoutMs, flags       uint32
	packID                 int32
	_                      uint32
	userPtr                uintptr
	status, maskedStatus   uint8
	msgStatus, senseLen    uint8
	hostStatus, drvStatus  uint16
	residual               int32
	duration, info         uint32
}

type ataDrive struct{ d *block.Disk }

// passThrough16 is the CDB of ATA PASS-THROUGH (16) (SAT-4, 12.2.2.3) for a command with one block of data or none.
func passThrough16(c erase.ATACommand) (cdb [16]byte, direction int32) {
	cdb[0], cdb[4], cdb[14] = 0x85, c.Feature, c.Command
	cdb[8], cdb[10], cdb[12] = byte(c.Address), byte(c.Address>>8), byte(c.Address>>16)
	switch {
	case c.Data == nil:
		cdb[1], direction = 3<<1, sgNone // non-data
	case c.In:
		// PIO data-in; the length in blocks stands in the sector count.
		cdb[1], cdb[2], cdb[6], direction = 4<<1, 1<<3|1<<2|2, 1, sgFromDevice
	default:
		cdb[1], cdb[2], cdb[6], direction = 5<<1, 1<<2|2, 1, sgToDevice
	}
	if c.Ext {
		cdb[1] |= 1
	}
	if c.LBA != nil {
		cdb[2] |= 1 << 5 // CK_COND: the registers come as sense data
		cdb[13] = 1 << 6 // addresses are LBA
	}
	return cdb, direction
}

// countIn reads the COUNT register, of which the fixed format has 8 bits and a flag when there are more.
func countIn(sense []byte) (uint16, error) {
	switch {
	case len(sense) >= 22 && sense[0]&0x7f == 0x72 && sense[8] == 0x09:
		return uint16(sense[12])<<8 | uint16(sense[13]), nil
	case len(sense) >= 14 && sense[0]&0x7f == 0x70 && sense[8]&(1<<6) == 0:
		return uint16(sense[6]), nil
	}
	return 0, statusError("the drive's registers did not come back in full")
}

// addressIn reads the LBA registers from sense data: the ATA Status Return descriptor (SAT-4, 12.2.2.7), or the fixed
// format, which has room for 24 bits and a flag when there are more (12.2.2.8). A drive that has aborted the command is
// an error.
func addressIn(sense []byte) (uint64, error) {
	if len(sense) >= 22 && sense[0]&0x7f == 0x72 && sense[8] == 0x09 {
		d := sense[8:22]
		if d[13]&1 != 0 {
			return 0, statusError("the drive has aborted the command, error register 0x%x", d[3])
		}
		low := uint64(d[7]) | uint64(d[9])<<8 | uint64(d[11])<<16
		if d[2]&1 == 0 {
			return low | uint64(d[12]&0xf)<<24, nil
		}
		return low | uint64(d[6])<<24 | uint64(d[8])<<32 | uint64(d[10])<<40, nil
	}
	if len(sense) < 14 || sense[0]&0x7f != 0x70 || sense[2]&0xf > 1 || sense[12] != 0 || sense[13] != 0x1d {
		return 0, statusError("the drive's registers did not come back, sense % x", sense)
	}
	switch {
	case sense[4]&1 != 0:
		return 0, statusError("the drive has aborted the command, error register 0x%x", sense[3])
	case sense[8]&(1<<5) != 0:
		return 0, statusError("the drive's registers did not come back in full")
	}
	low := uint64(sense[9]) | uint64(sense[10])<<8 | uint64(sense[11])<<16
	if sense[8]&(1<<7) == 0 { // a command of 28-bit addresses
		low |= uint64(sense[5]&0xf) << 24
	}
	return low, nil
}

// ATA implements erase.PassThrough.
func (a ataDrive) ATA(c erase.ATACommand) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	cdb, direction := passThrough16(c)
	sense := make([]byte, 32)
	pin.Pin(&cdb)
	pin.Pin(&sense[0])
	h := sgHeader{
		interfaceID: 'S', direction: direction, cmdLen: uint8(len(cdb)), maxSense: uint8(len(sense)),
		dataLen:   uint32(len(c.Data)),
		cmd:       uintptr(unsafe.Pointer(&cdb)),
		sense:     uintptr(unsafe.Pointer(&sense[0])), //nolint:gosec // pinned for the time of the call
		timeoutMs: uint32(c.Timeout.Milliseconds()),
	}
	if len(c.Data) > 0 {
		pin.Pin(&c.Data[0])
		h.data = uintptr(unsafe.Pointer(&c.Data[0])) //nolint:gosec // as above
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, a.d.Fd(), sgIO, uintptr(unsafe.Pointer(&h))) //nolint:gosec // as above
	if errno == 0 && h.hostStatus == 0 && c.LBA != nil {
		last, err := addressIn(sense[:h.senseLen])
		*c.LBA = last
		if err == nil && c.Count != nil {
			*c.Count, err = countIn(sense[:h.senseLen])
		}
		return err
	}
	switch {
	case errno != 0:
		return errno
	case h.status != 0 || h.hostStatus != 0 || h.drvStatus&0xf != 0:
		return statusError("SCSI status 0x%x, host 0x%x, driver 0x%x, sense % x", h.status, h.hostStatus, h.drvStatus,
			sense[:h.senseLen])
	}
	return nil
}
