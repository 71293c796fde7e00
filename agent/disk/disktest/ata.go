package disktest

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/erase"
)

// ATA is a drive with the security feature set of ACS-2 (4.18). A locked drive aborts reads and writes, a wrong
// password counts down, a frozen drive aborts all security commands. The password outlives the power. READ NATIVE MAX
// ADDRESS (EXT), DEVICE CONFIGURATION IDENTIFY and GET NATIVE MAX ADDRESS EXT answer as ACS-2 7.32, 7.33, 7.10.3 and
// ACS-3 7.1.2 have them. The registers are as in QEMU's hw/ide/core.c (cmd_read_native_max: the last address, not the
// number of sectors). While a sanitize is under way the media and most commands are aborted (ACS-3, 4.15), and SANITIZE
// STATUS EXT reports it.
type ATA struct {
	*Disk
	Security                      uint16
	FailErase, FailPassword, Keep bool
	KeepDisabled                  bool                 // SECURITY DISABLE PASSWORD is aborted too
	Lie                           bool                 // the erasure reports success and changes nothing
	Spare                         func(off int64) bool // a page that an erasure spares; nil: none
	Commands                      []byte
	Password                      string
	Tries                         int
	Enhanced                      bool
	Timeout                       time.Duration
	HPA, AMAC, DCO                uint64 // sectors behind the end that each hides; 0: the feature set is not there
	Old, Mute                     bool   // Old: 28-bit addresses alone; Mute: the commands are aborted
	// Sanitizing is how many polls a sanitize that is under way takes; HasSanitize: the drive has the feature set.
	Sanitizing                  int
	HasSanitize, SanitizeFailed bool
	Polls                       int
}

// Guard makes the disk's reads and writes fail while the drive is locked, or sanitizes itself.
func (a *ATA) Guard() {
	a.Disk.Blocked = func() error {
		if a.Security&4 != 0 || a.Sanitizing > 0 || a.SanitizeFailed {
			return ErrAborted
		}
		return nil
	}
}

// Lock makes the drive that lost its power with a password on it.
func (a *ATA) Lock(password string) {
	a.Password, a.Tries = password, 5
	a.Security |= 1 | 2 | 4
	a.Guard()
}

func (a *ATA) sectors() uint64 { return uint64(a.Size() / 512) }

// ATA implements erase.PassThrough.
func (a *ATA) ATA(c erase.ATACommand) error {
	a.Commands = append(a.Commands, c.Command)
	if c.Command >= 0xf1 && c.Command <= 0xf6 && a.Security&8 != 0 {
		return ErrAborted // frozen
	}
	if a.Sanitizing > 0 && c.Command != 0xec && c.Command != 0xb4 {
		return ErrAborted
	}
	sent := ""
	if len(c.Data) >= 34 {
		sent = string(bytes.TrimRight(c.Data[2:34], "\x00"))
	}
	switch c.Command {
	case 0xec:
		a.identify(c.Data)
	case 0x27, 0xf8, 0x78:
		return a.nativeMax(c)
	case 0xb1:
		if c.Feature != 0xc2 || a.Mute {
			return ErrAborted
		}
		binary.LittleEndian.PutUint64(c.Data[6:], a.sectors()+a.DCO-1)
	case 0xb4:
		return a.sanitizeStatus(c)
	case 0xf1:
		if a.FailPassword || a.Security&4 != 0 {
			return ErrAborted
		}
		a.Password = sent
		a.Security |= 2
	case 0xf2:
		if a.Tries--; a.Tries < 0 || sent != a.Password {
			return ErrAborted
		}
		a.Security &^= 4
	case 0xf4:
		if a.FailErase || sent != a.Password {
			return ErrAborted
		}
		a.Enhanced, a.Timeout = c.Data[0]&2 != 0, c.Timeout
		if !a.Lie {
			scramble(a.Disk, a.Spare)
		}
		if !a.Keep {
			a.Security &^= 2 | 4
		}
	case 0xf6:
		if a.KeepDisabled || a.Security&4 != 0 || sent != a.Password {
			return ErrAborted
		}
		a.Security &^= 2
	}
	return nil
}

func (a *ATA) identify(data []byte) {
	word := func(n int, v uint16) { binary.LittleEndian.PutUint16(data[2*n:], v) }
	word(89, 30) // an hour
	word(90, 0x8001)
	word(128, a.Security)
	if a.HasSanitize {
		word(59, 1<<12)
	}
	binary.LittleEndian.PutUint32(data[120:], uint32(a.sectors()))
	word(83, 1<<14)
	if !a.Old {
		word(83, 1<<14|1<<10)
		binary.LittleEndian.PutUint64(data[200:], a.sectors())
	}
	if a.HPA > 0 {
		word(82, 1<<10)
	}
	if a.DCO > 0 {
		word(83, binary.LittleEndian.Uint16(data[166:])|1<<11)
	}
	if a.AMAC > 0 {
		word(86, 1<<15)
		word(119, 1<<14|1<<8)
	}
}

func (a *ATA) nativeMax(c erase.ATACommand) error {
	hidden := map[uint8]uint64{0x27: a.HPA, 0xf8: a.HPA, 0x78: a.AMAC}[c.Command]
	if a.Mute || hidden == 0 || c.LBA == nil || c.Ext == (c.Command == 0xf8) || c.Ext && a.Old {
		return ErrAborted
	}
	*c.LBA = a.sectors() + hidden - 1
	return nil
}

// sanitizeStatus is SANITIZE STATUS EXT (ACS-3, 7.33.7): bit 15 of COUNT is set when the last one has completed, bit 14
// while one is under way. The values are those of hdparm's sgio.h and hdparm.c too.
func (a *ATA) sanitizeStatus(c erase.ATACommand) error {
	if !a.HasSanitize || a.SanitizeFailed || c.Feature != 0 || !c.Ext || c.LBA == nil || c.Count == nil {
		return ErrAborted
	}
	a.Polls++
	if a.Sanitizing == 0 {
		*c.LBA, *c.Count = 0xffff, 1<<15
		return nil
	}
	*c.LBA, *c.Count = 0x8000, 1<<14
	if a.Sanitizing--; a.Sanitizing == 0 {
		scramble(a.Disk, nil)
	}
	return nil
}
