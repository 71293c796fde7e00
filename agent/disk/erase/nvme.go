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
	cnsActive     = 0x02
	cnsAllocated  = 0x10
	logSanitize   = 0x81

	actExitFailure = 1
	actBlock       = 2
	actOverwrite   = 3
	actCrypto      = 4
	// unrestricted allows the exit from a sanitize that has failed (AUSE).
	unrestricted = 1 << 3

	quick = time.Minute
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

// sanitize orders a sanitize and waits until the controller has completed it. It first waits for one that is under way,
// which cannot be stopped.
func (c Config) sanitize(ctx context.Context, before *samples) (string, error) {
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
	*before = takeSamples(c.Disk)
	// One pass of overwriting, in bits 7:4; the pattern is CDW11.
	cdw10 := act | unrestricted
	if act == actOverwrite {
		cdw10 |= 1 << 4
	}
	if err := q.Admin(AdminCommand{Opcode: opSanitize, CDW10: cdw10, Timeout: quick}); err != nil {
		return name, fmt.Errorf("sanitize: %w", err)
	}
	status, err := c.sanitized(ctx, q)
	if err == nil && status != 1 && status != 4 {
		err = fmt.Errorf("%w: the sanitize status is %d", ErrNotErased, status)
		leaveFailure(q)
	}
	return name, err
}

// leaveFailure makes a disk whose sanitize has failed take reads and writes again (5.24, Exit Failure Mode). Where it
// does not, the methods that follow find that out.
func leaveFailure(q AdminQueue) {
	_ = q.Admin(AdminCommand{Opcode: opSanitize, CDW10: actExitFailure, Timeout: quick}) // see above
}

// awaitSanitize waits for a sanitize that was ordered before; until it ends the disk cannot be read.
func (c Config) awaitSanitize(ctx context.Context, out *Evidence) error {
	q := c.Disk.NVMe()
	if q == nil {
		return nil
	}
	id, err := identify(q, cnsController, 0)
	if err != nil || binary.LittleEndian.Uint32(id[328:])&7 == 0 {
		return nil // no sanitize, and so none under way
	}
	first, err := readSanitize(q)
	if err != nil {
		return nil // the methods tell what else is wrong
	}
	status := first.status
	if status == sanitizing {
		if status, err = c.sanitized(ctx, q); err != nil {
			return err
		}
		out.Notes = append(out.Notes, "a sanitize that was under way has ended first")
	}
	if status == sanitizeFailed {
		leaveFailure(q)
	}
	return nil
}

// Sanitize Status, bits 2:0 (5.16.1.25): 1 and 4 are success.
const (
	sanitizing     = 2
	sanitizeFailed = 3
)

type sanitizeLog struct {
	status  uint16
	percent int
	// takes is the longest of the times that the controller estimates; 0 is unknown.
	takes time.Duration
}

func readSanitize(q AdminQueue) (sanitizeLog, error) {
	data := make([]byte, 512)
	err := q.Admin(AdminCommand{
		Opcode: opGetLogPage, NSID: 0xffffffff, CDW10: logSanitize | uint32(len(data)/4-1)<<16, Data: data, Timeout: quick,
	})
	if err != nil {
		return sanitizeLog{}, fmt.Errorf("read sanitize status: %w", err)
	}
	out := sanitizeLog{status: binary.LittleEndian.Uint16(data[2:]) & 7,
		percent: int(binary.LittleEndian.Uint16(data)) * 100 >> 16}
	for _, at := range []int{8, 12, 16} {
		if seconds := binary.LittleEndian.Uint32(data[at:]); seconds != 0xffffffff {
			out.takes = max(out.takes, time.Duration(seconds)*time.Second)
		}
	}
	return out, nil
}

// sanitized waits while a sanitize is under way and returns the status of the last.
func (c Config) sanitized(ctx context.Context, q AdminQueue) (status uint16, err error) {
	for begun := c.Clock.Now(); ; {
		now, err := readSanitize(q)
		if err != nil {
			return 0, err
		}
		if now.status != sanitizing {
			return now.status, nil
		}
		c.Progress(now.percent, string(NVMeSanitize))
		if limit := c.deviceTime(now.takes); c.Clock.Now().Sub(begun) > limit {
			return 0, fmt.Errorf("%w: the sanitize takes longer than %s", ErrNotErased, limit)
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-c.Clock.After(time.Second):
		}
	}
}

// format erases the namespace and leaves its format as it is.
func (c Config) format(before *samples) (string, error) {
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
	*before = takeSamples(c.Disk)
	err = q.Admin(AdminCommand{Opcode: opFormat, NSID: nsid, CDW10: formatWord(ns) | ses<<9, Timeout: c.deviceTime(0)})
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
