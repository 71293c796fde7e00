package erase

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// AdminCommand is one command of an NVMe admin queue (NVM Express Base Specification 2.0, figure 87).
type AdminCommand struct {
	Opcode  uint8
	NSID    uint32
	CDW10   uint32
	CDW11   uint32
	Data    []byte // read into; nil: none
	Timeout time.Duration
}

// AdminQueue sends commands to a controller. A status other than success is an error.
type AdminQueue interface {
	Admin(AdminCommand) error
	// Namespace is the one that the disk is.
	Namespace() (uint32, error)
}

// Opcodes and fields of the specification; section numbers are those of the Base Specification 2.0.
const (
	opGetLogPage = 0x02 // 5.16
	opIdentify   = 0x06 // 5.17
	opFormat     = 0x80 // 5.14
	opSanitize   = 0x84 // 5.24

	cnsNamespace  = 0x00
	cnsController = 0x01
	logSanitize   = 0x81

	actOverwrite = 3
	actBlock     = 2
	actCrypto    = 4

	quick       = time.Minute
	formatTime  = 6 * time.Hour
	sanitizeTry = 6 * time.Hour
)

func identify(q AdminQueue, cns, nsid uint32) ([]byte, error) {
	data := make([]byte, 4096)
	err := q.Admin(AdminCommand{Opcode: opIdentify, NSID: nsid, CDW10: cns, Data: data, Timeout: quick})
	if err != nil {
		return nil, fmt.Errorf("identify: %w", err)
	}
	return data, nil
}

// sanitizeAction takes the quickest that leaves nothing: SANICAP, bytes 331:328.
func sanitizeAction(sanicap uint32) (act uint32, name string) {
	switch {
	case sanicap&1 != 0:
		return actCrypto, "crypto erase"
	case sanicap&2 != 0:
		return actBlock, "block erase"
	case sanicap&4 != 0:
		return actOverwrite, "overwrite by the device"
	}
	return 0, ""
}

// sanitize orders it and waits for the controller to be through. What is under way already is waited for first. It
// cannot be stopped.
func (c Config) sanitize(ctx context.Context) (string, error) {
	q := c.Disk.NVMe()
	if q == nil {
		return "", fmt.Errorf("%w: it is no NVMe disk", ErrUnsupported)
	}
	id, err := identify(q, cnsController, 0)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	act, name := sanitizeAction(binary.LittleEndian.Uint32(id[328:]))
	switch {
	case act == 0:
		return "", fmt.Errorf("%w: the controller has no sanitize", ErrUnsupported)
	case !c.Alone:
		return "", fmt.Errorf("%w: it would take the other disks of its controller too", ErrUnsupported)
	}
	if _, err := c.sanitized(ctx, q); err != nil {
		return "", err
	}
	// One pass of overwriting, in bits 7:4; the pattern is CDW11.
	cdw10 := act
	if act == actOverwrite {
		cdw10 |= 1 << 4
	}
	if err := q.Admin(AdminCommand{Opcode: opSanitize, CDW10: cdw10, Timeout: quick}); err != nil {
		return name, fmt.Errorf("sanitize: %w", err)
	}
	status, err := c.sanitized(ctx, q)
	if err == nil && status != 1 && status != 4 {
		err = fmt.Errorf("%w: the sanitize status is %d", ErrNotErased, status)
	}
	return name, err
}

// sanitized waits while a sanitize is under way and gives the status of the last: 1 or 4 is success (5.16.1.25).
func (c Config) sanitized(ctx context.Context, q AdminQueue) (status uint16, err error) {
	data := make([]byte, 512)
	for limit := c.Clock.Now().Add(sanitizeTry); ; {
		err := q.Admin(AdminCommand{
			Opcode: opGetLogPage, NSID: 0xffffffff, CDW10: logSanitize | uint32(len(data)/4-1)<<16, Data: data, Timeout: quick,
		})
		if err != nil {
			return 0, fmt.Errorf("read sanitize status: %w", err)
		}
		status := binary.LittleEndian.Uint16(data[2:]) & 7
		if status != 2 {
			return status, nil
		}
		c.Progress(int(binary.LittleEndian.Uint16(data))*100>>16, string(NVMeSanitize))
		if c.Clock.Now().After(limit) {
			return 0, fmt.Errorf("%w: it takes longer than %s", ErrNotErased, sanitizeTry)
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-c.Clock.After(time.Second):
		}
	}
}

// format erases the namespace and leaves its format as it is.
func (c Config) format() (string, error) {
	q := c.Disk.NVMe()
	if q == nil {
		return "", fmt.Errorf("%w: it is no NVMe disk", ErrUnsupported)
	}
	nsid, err := q.Namespace()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	ctrl, err := identify(q, cnsController, 0)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if binary.LittleEndian.Uint16(ctrl[256:])&2 == 0 { // OACS
		return "", fmt.Errorf("%w: the controller has no format command", ErrUnsupported)
	}
	fna := ctrl[524]
	if fna&3 != 0 && !c.Alone {
		return "", fmt.Errorf("%w: it would take the other disks of its controller too", ErrUnsupported)
	}
	ns, err := identify(q, cnsNamespace, nsid)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	ses, name := uint32(1), "user data erase"
	if fna&4 != 0 {
		ses, name = 2, "crypto erase"
	}
	err = q.Admin(AdminCommand{Opcode: opFormat, NSID: nsid, CDW10: formatWord(ns) | ses<<9, Timeout: formatTime})
	if err != nil {
		return name, fmt.Errorf("format: %w", err)
	}
	return name, nil
}

// formatWord repeats what the namespace has: FLBAS is byte 26, DPS byte 29.
func formatWord(ns []byte) uint32 {
	flbas, dps := uint32(ns[26]), uint32(ns[29])
	w := flbas & 0xf // format index, low bits
	w |= (flbas >> 4) << 4 & (1 << 4)
	w |= (dps & 7) << 5
	w |= (dps >> 3 & 1) << 8
	w |= (flbas >> 5 & 3) << 12 // format index, high bits
	return w
}
