package erase_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/erase"
)

// scramble leaves other data than before, as a crypto erase does.
func scramble(d *disktest.Disk) {
	b := block.Buffer(1 << 20)
	for off := int64(0); off < d.Size(); off += int64(len(b)) {
		if _, err := d.ReadAt(b, off); err != nil {
			panic(err)
		}
		for i := range b {
			b[i] ^= 0x33
		}
		if _, err := d.WriteAt(b, off); err != nil {
			panic(err)
		}
	}
}

var errAborted = errors.New("command aborted")

// nvme is a controller as the NVM Express Base Specification 2.0 has it: Identify (figures 275 and 280), Sanitize (5.24) with
// its log (figure 234), Format NVM (5.14). While a sanitize is under way, and after one that has failed, the media cannot be
// accessed (8.21).
type nvme struct {
	d                     *disktest.Disk
	oacs, fna             byte
	sanicap               uint32
	flbas, dps            byte
	fail, lie             bool
	busy                  int // polls until a sanitize is through
	result                uint16
	estimate              uint32 // seconds, of a block erase
	free                  uint64 // UNVMCAP
	attached, allocated   int    // namespaces
	ops                   []byte
	formatWord, sanitized uint32
	polls                 int
}

func (n *nvme) Namespace() (uint32, error) { return 1, nil }

// media makes the disk's reads and writes fail as long as the specification wants them to.
func (n *nvme) media() {
	n.d.OnRead = func([]byte, int64) error {
		if n.busy > 0 || n.result == 3 {
			return errors.New("sanitize in progress, or failed")
		}
		return nil
	}
	n.d.OnWrite = func(b []byte, off int64) (int, error) {
		if err := n.d.OnRead(b, off); err != nil {
			return 0, err
		}
		return len(b), nil
	}
}

func (n *nvme) Admin(c erase.AdminCommand) error {
	n.ops = append(n.ops, c.Opcode)
	switch c.Opcode {
	case 0x06:
		n.identify(c)
		return nil
	case 0x02:
		n.polls++
		status := n.result
		if n.busy--; n.busy >= 0 {
			status = 2
		}
		binary.LittleEndian.PutUint16(c.Data, 0x8000)
		binary.LittleEndian.PutUint16(c.Data[2:], status)
		for _, at := range []int{8, 12, 16} {
			binary.LittleEndian.PutUint32(c.Data[at:], 0xffffffff)
		}
		binary.LittleEndian.PutUint32(c.Data[12:], n.estimate)
		return nil
	case 0x80:
		n.formatWord = c.CDW10
	case 0x84:
		if c.CDW10&7 == 1 { // Exit Failure Mode
			n.result = 0
			return nil
		}
		n.sanitized = c.CDW10
		if n.sanicap == 0 {
			return errAborted
		}
		n.busy, n.result = 3, 1
		if n.fail {
			n.result = 3
		}
	default:
		return errAborted
	}
	if n.fail && c.Opcode == 0x80 {
		return errAborted
	}
	if !n.lie {
		busy, result := n.busy, n.result
		n.busy, n.result = 0, 0
		scramble(n.d)
		n.busy, n.result = busy, result
	}
	return nil
}

func (n *nvme) identify(c erase.AdminCommand) {
	list := func(count int) {
		for i := range count {
			binary.LittleEndian.PutUint32(c.Data[4*i:], uint32(i+1))
		}
	}
	switch c.CDW10 {
	case 0x01:
		c.Data[256], c.Data[524] = n.oacs, n.fna
		binary.LittleEndian.PutUint32(c.Data[328:], n.sanicap)
		binary.LittleEndian.PutUint64(c.Data[296:], n.free)
	case 0x02:
		list(n.attached)
	case 0x10:
		list(n.allocated)
	default:
		c.Data[26], c.Data[29] = n.flbas, n.dps
	}
}

// ata is a drive with the security feature set of ACS-2 (4.18): a locked drive aborts reads and writes, a wrong password
// counts down, a frozen drive aborts all security commands, and the password outlives the power. READ NATIVE MAX ADDRESS
// (EXT), DEVICE CONFIGURATION IDENTIFY and GET NATIVE MAX ADDRESS EXT answer as ACS-2 7.32, 7.33, 7.10.3 and ACS-3 7.1.2
// have them; what the registers look like is as in QEMU's hw/ide/core.c (cmd_read_native_max: the last address, not the
// number of sectors).
type ata struct {
	d                             *disktest.Disk
	security                      uint16
	failErase, failPassword, keep bool
	keepDisabled                  bool // SECURITY DISABLE PASSWORD is aborted too
	commands                      []byte
	password                      string
	tries                         int
	enhanced                      bool
	timeout                       time.Duration
	hpa, amac, dco                uint64 // sectors behind the end that each hides; 0: the feature set is not there
	old, mute                     bool   // old: 28-bit addresses alone; mute: the commands are aborted
}

// lock makes the drive that lost its power with a password on it.
func (a *ata) lock(password string) {
	a.password, a.tries = password, 5
	a.security |= 1 | 2 | 4
	a.d.OnRead = func([]byte, int64) error {
		if a.security&4 != 0 {
			return errAborted
		}
		return nil
	}
	a.d.OnWrite = func(b []byte, off int64) (int, error) {
		if a.security&4 != 0 {
			return 0, errAborted
		}
		return len(b), nil
	}
}

func (a *ata) sectors() uint64 { return uint64(a.d.Size() / 512) }

func (a *ata) ATA(c erase.ATACommand) error {
	a.commands = append(a.commands, c.Command)
	if c.Command >= 0xf1 && c.Command <= 0xf6 && a.security&8 != 0 {
		return errAborted // frozen
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
		if c.Feature != 0xc2 || a.mute {
			return errAborted
		}
		binary.LittleEndian.PutUint64(c.Data[6:], a.sectors()+a.dco-1)
	case 0xf1:
		if a.failPassword || a.security&4 != 0 {
			return errAborted
		}
		a.password = sent
		a.security |= 2
	case 0xf2:
		if a.tries--; a.tries < 0 || sent != a.password {
			return errAborted
		}
		a.security &^= 4
	case 0xf4:
		if a.failErase || sent != a.password {
			return errAborted
		}
		a.enhanced, a.timeout = c.Data[0]&2 != 0, c.Timeout
		scramble(a.d)
		if !a.keep {
			a.security &^= 2 | 4
		}
	case 0xf6:
		if a.keepDisabled || a.security&4 != 0 || sent != a.password {
			return errAborted
		}
		a.security &^= 2
	}
	return nil
}

func (a *ata) identify(data []byte) {
	word := func(n int, v uint16) { binary.LittleEndian.PutUint16(data[2*n:], v) }
	word(89, 30) // an hour
	word(90, 0x8001)
	word(128, a.security)
	binary.LittleEndian.PutUint32(data[120:], uint32(a.sectors()))
	word(83, 1<<14)
	if !a.old {
		word(83, 1<<14|1<<10)
		binary.LittleEndian.PutUint64(data[200:], a.sectors())
	}
	if a.hpa > 0 {
		word(82, 1<<10)
	}
	if a.dco > 0 {
		word(83, binary.LittleEndian.Uint16(data[166:])|1<<11)
	}
	if a.amac > 0 {
		word(86, 1<<15)
		word(119, 1<<14|1<<8)
	}
}

func (a *ata) nativeMax(c erase.ATACommand) error {
	hidden := map[uint8]uint64{0x27: a.hpa, 0xf8: a.hpa, 0x78: a.amac}[c.Command]
	if a.mute || hidden == 0 || c.LBA == nil || c.Ext == (c.Command == 0xf8) || c.Ext && a.old {
		return errAborted
	}
	*c.LBA = a.sectors() + hidden - 1
	return nil
}
