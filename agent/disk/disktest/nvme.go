package disktest

import (
	"encoding/binary"
	"errors"

	"github.com/ingot-metal/ingot/agent/disk/erase"
)

// ErrAborted is what a drive answers to a command that it does not take.
var ErrAborted = errors.New("command aborted")

// scramble leaves other data than before, as a crypto erase does, except where spare returns true.
func scramble(d *Disk, spare func(off int64) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.key = d.key*3 + 0x33 // another than before: two of the same would give the old data back
	for at := int64(0); at < d.size; at += pageSize {
		if spare != nil && spare(at) {
			continue
		}
		fresh := new([pageSize]byte)
		if page := d.cache[at/pageSize]; page != nil {
			*fresh = *page
		}
		for i := range fresh {
			fresh[i] ^= d.key
		}
		d.cache[at/pageSize] = fresh
	}
	d.durable, d.veil, d.fresh = d.cache.clone(), nil, 0
}

// NVMe is a controller as the NVM Express Base Specification 2.0 has it: Identify (figures 275 and 280), Sanitize
// (5.24) with its log (figure 234), Format NVM (5.14). While a sanitize is under way, and after one that has failed,
// the media cannot be accessed (8.21).
type NVMe struct {
	*Disk
	OACS, FNA  byte
	Sanicap    uint32
	FLBAS, DPS byte
	Fail       bool
	Lie        bool                 // it reports success and changes nothing
	Spare      func(off int64) bool // a page that an erasure spares; nil: none
	Busy       int                  // polls until a sanitize is through
	Result     uint16               // Sanitize Status
	Estimate   uint32               // seconds, of a block erase
	Free       uint64               // UNVMCAP
	Attached   int                  // namespaces
	Allocated  int                  // namespaces
	Ops        []byte
	FormatWord uint32
	Sanitized  uint32
	Polls      int
}

// Namespace implements erase.AdminQueue, as Admin does.
func (n *NVMe) Namespace() (uint32, error) { return 1, nil }

// Guard makes the disk's reads and writes fail as long as the specification wants them to.
func (n *NVMe) Guard() {
	n.Disk.Blocked = func() error {
		if n.Busy > 0 || n.Result == 3 {
			return errors.New("sanitize in progress, or failed")
		}
		return nil
	}
}

// Admin implements erase.AdminQueue.
func (n *NVMe) Admin(c erase.AdminCommand) error {
	n.Ops = append(n.Ops, c.Opcode)
	switch c.Opcode {
	case 0x06:
		n.identify(c)
		return nil
	case 0x02:
		n.Polls++
		status := n.Result
		if n.Busy--; n.Busy >= 0 {
			status = 2
		}
		binary.LittleEndian.PutUint16(c.Data, 0x8000)
		binary.LittleEndian.PutUint16(c.Data[2:], status)
		for _, at := range []int{8, 12, 16} {
			binary.LittleEndian.PutUint32(c.Data[at:], 0xffffffff)
		}
		binary.LittleEndian.PutUint32(c.Data[12:], n.Estimate)
		return nil
	case 0x80:
		n.FormatWord = c.CDW10
	case 0x84:
		if c.CDW10&7 == 1 { // Exit Failure Mode
			n.Result = 0
			return nil
		}
		n.Sanitized = c.CDW10
		if n.Sanicap == 0 {
			return ErrAborted
		}
		n.Busy, n.Result = 3, 1
		if n.Fail {
			n.Result = 3
		}
	default:
		return ErrAborted
	}
	if n.Fail && c.Opcode == 0x80 {
		return ErrAborted
	}
	if !n.Lie {
		scramble(n.Disk, n.Spare)
	}
	return nil
}

func (n *NVMe) identify(c erase.AdminCommand) {
	list := func(count int) {
		for i := range count {
			binary.LittleEndian.PutUint32(c.Data[4*i:], uint32(i+1))
		}
	}
	switch c.CDW10 {
	case 0x01:
		c.Data[256], c.Data[524] = n.OACS, n.FNA
		binary.LittleEndian.PutUint32(c.Data[328:], n.Sanicap)
		binary.LittleEndian.PutUint64(c.Data[296:], n.Free)
	case 0x02:
		list(n.Attached)
	case 0x10:
		list(n.Allocated)
	default:
		c.Data[26], c.Data[29] = n.FLBAS, n.DPS
	}
}
