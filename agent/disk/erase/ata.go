package erase

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// ATACommand is one command to an ATA drive (ATA/ATAPI Command Set 4, ACS-4). Data is 512 bytes in the direction that
// the command has, or nil.
type ATACommand struct {
	Command uint8
	Feature uint8
	// Ext marks a command with 48-bit addresses.
	Ext     bool
	Data    []byte
	In      bool
	Timeout time.Duration
	// LBA and Count take what the drive's registers hold after the command; nil is not asked for. Count goes with LBA.
	LBA   *uint64
	Count *uint16
	// Address goes with the command, 24 bits: a signature of some commands.
	Address uint32
}

// PassThrough sends commands to an ATA drive. A drive that aborts a command is an error.
type PassThrough interface{ ATA(ATACommand) error }

// Commands of ACS-4, chapter 7.
const (
	ataIdentify        = 0xec
	ataSetPassword     = 0xf1
	ataUnlock          = 0xf2
	ataErasePrepare    = 0xf3
	ataEraseUnit       = 0xf4
	ataDisablePassword = 0xf6
)

// erasePassword stands on the drive from the order to its end, which takes it away. It is no secret: it unlocks a drive
// that lost power in between.
const erasePassword = "ingot-erase"

// security is word 128 of the identification (ACS-4, 7.13.7.64) with the times of words 89 and 90.
type security struct {
	supported, enabled, locked, frozen, enhanced bool
	normalTime, enhancedTime                     time.Duration
}

func readSecurity(p PassThrough) (security, error) {
	id := make([]byte, 512)
	if err := p.ATA(ATACommand{Command: ataIdentify, Data: id, In: true, Timeout: quick}); err != nil {
		return security{}, fmt.Errorf("identify: %w", err)
	}
	word := func(n int) uint16 { return binary.LittleEndian.Uint16(id[2*n:]) }
	w := word(128)
	return security{
		supported: w&1 != 0, enabled: w&2 != 0, locked: w&4 != 0, frozen: w&8 != 0, enhanced: w&32 != 0,
		normalTime: eraseTime(word(89)), enhancedTime: eraseTime(word(90)),
	}, nil
}

// eraseTime: units of 2 minutes, in 8 bits or, when bit 15 is set, in 15. The largest value and 0 mean unknown: it
// returns 0.
func eraseTime(w uint16) time.Duration {
	n, most := w&0xff, uint16(0xff)
	if w&0x8000 != 0 {
		n, most = w&0x7fff, 0x7fff
	}
	if n == 0 || n == most {
		return 0
	}
	return time.Duration(n) * 2 * time.Minute
}

// refusal returns the reason why a drive cannot be erased in this way.
func (s security) refusal() string {
	switch {
	case !s.supported:
		return "the drive has no security feature set"
	case s.frozen:
		return "the firmware has frozen the drive's security until the next power cycle"
	case s.locked, s.enabled:
		return "the drive has a password that another party set"
	}
	return ""
}

// secureErase cannot be stopped.
func (c Config) secureErase(before *samples) (string, error) {
	p := c.Disk.ATA()
	if p == nil {
		return "", fmt.Errorf("%w: it is no ATA drive", ErrUnsupported)
	}
	s, err := readSecurity(p)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if why := s.refusal(); why != "" {
		return "", fmt.Errorf("%w: %s", ErrUnsupported, why)
	}
	detail, takes := "erase", s.normalTime
	if s.enhanced {
		detail, takes = "enhanced erase", s.enhancedTime
	}
	if err := p.ATA(ATACommand{Command: ataSetPassword, Data: passwordBlock(0), Timeout: quick}); err != nil {
		return detail, fmt.Errorf("%w: set password: %w", ErrUnsupported, err)
	}
	*before = takeSamples(c.Disk)
	if err := eraseUnit(p, s.enhanced, c.deviceTime(takes)); err != nil {
		// Without this the drive would be locked at its next power-on.
		undo := p.ATA(ATACommand{Command: ataDisablePassword, Data: passwordBlock(0), Timeout: quick})
		return detail, errors.Join(err, undo)
	}
	after, err := readSecurity(p)
	if err == nil && after.enabled {
		err = fmt.Errorf("%w: the drive still has the password that an erasure takes away", ErrNotErased)
	}
	return detail, err
}

// removeOurPassword takes away the password that an erasure has left which lost power. It tries ours once: a drive
// counts the tries. foreign reports whether another one is on the drive afterwards.
func (c Config) removeOurPassword(out *Evidence) (foreign bool, err error) {
	p := c.Disk.ATA()
	if p == nil {
		return false, nil
	}
	s, err := readSecurity(p)
	if err != nil || !s.enabled {
		return false, nil // no ATA drive, or one without a password
	}
	if s.frozen {
		out.Notes = append(out.Notes, "the drive has a password, and its firmware has frozen it until the next power cycle")
		return true, nil
	}
	if s.locked {
		if err := p.ATA(ATACommand{Command: ataUnlock, Data: passwordBlock(0), Timeout: quick}); err != nil {
			return true, fmt.Errorf("%w: the drive is locked with a password that is not ours: %w", ErrUnsupported, err)
		}
	}
	err = p.ATA(ATACommand{Command: ataDisablePassword, Data: passwordBlock(0), Timeout: quick})
	after, readErr := readSecurity(p)
	switch {
	case readErr == nil && !after.enabled:
		out.Notes = append(out.Notes, "a password of an erasure before this one was removed from the drive")
		return false, nil
	case s.locked:
		return false, fmt.Errorf("%w: our password unlocked the drive and cannot be removed: %w", ErrNotErased,
			errors.Join(err, readErr))
	}
	out.Notes = append(out.Notes, "the drive has a password that is not ours; it stays")
	return true, nil
}

// noPasswordOfOurs fails when the drive would lock itself with our password at the next power-on.
func (c Config) noPasswordOfOurs(foreign bool, out *Evidence) error {
	if foreign || c.Disk.ATA() == nil {
		return nil
	}
	left, err := c.removeOurPassword(out)
	if err == nil && left {
		err = fmt.Errorf("%w: our password is still on the drive", ErrNotErased)
	}
	return err
}

func eraseUnit(p PassThrough, enhanced bool, takes time.Duration) error {
	if err := p.ATA(ATACommand{Command: ataErasePrepare, Timeout: quick}); err != nil {
		return fmt.Errorf("prepare erasure: %w", err)
	}
	flags := uint16(0)
	if enhanced {
		flags = 2
	}
	if err := p.ATA(ATACommand{Command: ataEraseUnit, Data: passwordBlock(flags), Timeout: takes}); err != nil {
		return fmt.Errorf("erase unit: %w", err)
	}
	return nil
}

// passwordBlock is the data of the security commands: a word of flags (bit 0: master password, bit 1: enhanced), and 32
// bytes of password.
func passwordBlock(flags uint16) []byte {
	b := make([]byte, 512)
	binary.LittleEndian.PutUint16(b, flags)
	copy(b[2:34], erasePassword)
	return b
}
