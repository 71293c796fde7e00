package segment

import (
	"fmt"
	"net/netip"
	"sync/atomic"
)

// BootMode is what a machine is to start.
type BootMode string

const (
	// BootInstaller: the installer of one operation.
	BootInstaller BootMode = "installer"
	// BootRescue: the RAM system, which then waits.
	BootRescue BootMode = "rescue"
	// BootDisk: its own disk. It gets an address and no boot file, so that its firmware goes on to the disk.
	BootDisk BootMode = "disk"
)

// Assignment is what the controller wants one network card to boot. A machine with several cards has one for each.
type Assignment struct {
	// Segment is the name of the segment that it is for. On another the card boots from disk.
	Segment     string
	MAC         MAC
	MachineID   string
	OperationID string
	Mode        BootMode
	// Token is the capability in boot URLs: random, of this operation only, dead when the assignment changes.
	Token string
	// Kernel, Initrd and UKI name blobs by the SHA-256 of their bytes, in lower-case hex.
	Kernel, Initrd, UKI string
	// Cmdline is added to the kernel's parameters. It holds no secret: anybody on the segment can read it.
	Cmdline string
	// Hostname is sent by DHCP, where it is set.
	Hostname string
	// Address is the machine's fixed one; the zero value means one of the pool.
	Address netip.Addr
	// Media is set where the machine starts from an image that its BMC attaches, and nothing is served to it before.
	Media *MediaBoot
	// Revision is that of the document in which this assignment last changed.
	Revision int64
}

// MediaBoot is what a machine gets in the image that its BMC attaches.
type MediaBoot struct {
	// Secret proves that an installer was started from the image.
	Secret []byte
	// Address is the installer's, with its prefix; the zero value means by DHCP.
	Address netip.Prefix
}

// NetBoots reports whether the network is to start it.
func (a Assignment) NetBoots() bool { return a.Boots() && a.Media == nil }

// Boots reports whether the machine is to start something else than its disk.
func (a Assignment) Boots() bool { return a.Mode == BootInstaller || a.Mode == BootRescue }

// Document has the controller's settings of a site agent's segments, at one revision.
type Document struct {
	Revision    int64
	Segments    []Segment
	Assignments []Assignment
}

// Table knows the assignments of a document that can be replaced at any time. A reader sees the old document or the new
// one, never a mixture. The zero value is an empty table. All methods may be called from any goroutine.
type Table struct {
	current atomic.Pointer[index]
}

// index is never changed after it has been stored in a Table.
type index struct {
	doc     Document
	byMAC   map[MAC]Assignment
	byToken map[string][]Assignment
	byAddr  map[netip.Addr]Assignment
}

// Replace makes doc the one that is answered from. When it makes no sense the older one stays.
func (t *Table) Replace(doc Document) error {
	next, err := newIndex(doc)
	if err != nil {
		return err
	}
	t.current.Store(next)
	return nil
}

func newIndex(doc Document) (*index, error) {
	ix := &index{
		doc: doc, byMAC: make(map[MAC]Assignment, len(doc.Assignments)), byToken: map[string][]Assignment{},
		byAddr: map[netip.Addr]Assignment{},
	}
	for _, a := range doc.Assignments {
		if err := ix.add(a); err != nil {
			return nil, fmt.Errorf("revision %d: %w", doc.Revision, err)
		}
	}
	return ix, nil
}

func (ix *index) add(a Assignment) error {
	if a.MAC == (MAC{}) {
		return fmt.Errorf("assignment of machine %s has no MAC address", a.MachineID)
	}
	if other, twice := ix.byMAC[a.MAC]; twice {
		return fmt.Errorf("assignments of machines %s and %s have one MAC address: %v", other.MachineID, a.MachineID, a.MAC)
	}
	switch a.Mode {
	case BootInstaller, BootRescue, BootDisk:
	default:
		return fmt.Errorf("assignment of machine %s: mode %q is not installer, rescue or disk", a.MachineID, a.Mode)
	}
	if other, twice := ix.byAddr[a.Address]; twice {
		return fmt.Errorf("assignments of machines %s and %s have one address: %v", other.MachineID, a.MachineID, a.Address)
	}
	if a.Address.IsValid() {
		ix.byAddr[a.Address] = a
	}
	ix.byMAC[a.MAC] = a
	return ix.addToken(a)
}

func (ix *index) addToken(a Assignment) error {
	if a.Token == "" || !a.Boots() {
		return nil
	}
	for _, other := range ix.byToken[a.Token] {
		if other.MachineID != a.MachineID || other.OperationID != a.OperationID {
			return fmt.Errorf("machines %s and %s have one boot token", other.MachineID, a.MachineID)
		}
	}
	ix.byToken[a.Token] = append(ix.byToken[a.Token], a)
	return nil
}

// Find returns the assignment of a network card.
func (t *Table) Find(mac MAC) (Assignment, bool) {
	ix := t.current.Load()
	if ix == nil {
		return Assignment{}, false
	}
	a, ok := ix.byMAC[mac]
	return a, ok
}

// FindToken returns the assignments that a boot token stands for: one for each card of the machine; none when the token
// is empty, unknown or dead. The caller must not change them.
func (t *Table) FindToken(token string) []Assignment {
	ix := t.current.Load()
	if ix == nil || token == "" {
		return nil
	}
	return ix.byToken[token]
}

// FindAddress returns the assignment that fixes an address.
func (t *Table) FindAddress(address netip.Addr) (Assignment, bool) {
	ix := t.current.Load()
	if ix == nil {
		return Assignment{}, false
	}
	a, ok := ix.byAddr[address]
	return a, ok
}

// Document is the one that is answered from. The caller must not change it.
func (t *Table) Document() Document {
	if ix := t.current.Load(); ix != nil {
		return ix.doc
	}
	return Document{}
}
