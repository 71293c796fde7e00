package boot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"unicode/utf16"
)

// errEFI is the error for bytes that do not conform to the UEFI specification.
var errEFI = errors.New("malformed EFI data")

// Device path nodes that matter here (UEFI specification 2.10, section 10.3).
const (
	dpMessaging = 0x03
	dpMAC       = 0x0b // 3/11
	dpIPv4      = 0x0c // 3/12
	dpIPv6      = 0x0d // 3/13
	dpURI       = 0x18 // 3/24
	dpEnd       = 0x7f
	dpEndAll    = 0xff
)

// loadOptionActive is LOAD_OPTION_ACTIVE (section 3.1.3).
const loadOptionActive = 1

// dpNode is one node of a device path. data excludes its four bytes of header.
type dpNode struct {
	kind, subkind byte
	data          []byte
}

// loadOption is an EFI_LOAD_OPTION: the content of a Boot#### variable.
type loadOption struct {
	attributes  uint32
	description string
	path        []dpNode // of the first device path in the list; the others are hints
}

// bootEntry is a load option with the number in the name of its variable.
type bootEntry struct {
	number uint16
	option loadOption
}

func (e bootEntry) name() string { return entryName(e.number) }

func entryName(number uint16) string { return fmt.Sprintf("Boot%04X", number) }

// parseLoadOption reads attributes, length of the path list, NUL-terminated UTF-16 description, path list;
// what follows belongs to the option itself.
func parseLoadOption(b []byte) (loadOption, error) {
	if len(b) < 6 {
		return loadOption{}, fmt.Errorf("load option of %d bytes: %w", len(b), errEFI)
	}
	o := loadOption{attributes: binary.LittleEndian.Uint32(b)}
	pathLen := int(binary.LittleEndian.Uint16(b[4:]))
	text, rest, err := parseUTF16(b[6:])
	if err != nil {
		return loadOption{}, err
	}
	if pathLen > len(rest) {
		return loadOption{}, fmt.Errorf("path list of %d bytes, %d are left: %w", pathLen, len(rest), errEFI)
	}
	o.description = text
	o.path, err = parseDevicePath(rest[:pathLen])
	return o, err
}

func parseUTF16(b []byte) (text string, rest []byte, err error) {
	var units []uint16
	for len(b) >= 2 {
		u := binary.LittleEndian.Uint16(b)
		b = b[2:]
		if u == 0 {
			return string(utf16.Decode(units)), b, nil
		}
		units = append(units, u)
	}
	return "", nil, fmt.Errorf("description has no end: %w", errEFI)
}

// parseDevicePath reads nodes up to the first end node, which it leaves out.
func parseDevicePath(b []byte) ([]dpNode, error) {
	var nodes []dpNode
	for {
		if len(b) < 4 {
			return nil, fmt.Errorf("device path has no end: %w", errEFI)
		}
		size := int(binary.LittleEndian.Uint16(b[2:]))
		if size < 4 || size > len(b) {
			return nil, fmt.Errorf("device path node of %d bytes, %d are left: %w", size, len(b), errEFI)
		}
		if b[0] == dpEnd {
			return nodes, nil // of the whole path or of its first instance
		}
		nodes = append(nodes, dpNode{kind: b[0], subkind: b[1], data: b[4:size]})
		b = b[size:]
	}
}

// parseBootOrder reads the numbers in BootOrder or BootNext.
func parseBootOrder(b []byte) ([]uint16, error) {
	if len(b)%2 != 0 {
		return nil, fmt.Errorf("boot order of %d bytes: %w", len(b), errEFI)
	}
	order := make([]uint16, 0, len(b)/2)
	for ; len(b) > 0; b = b[2:] {
		order = append(order, binary.LittleEndian.Uint16(b))
	}
	return order, nil
}

func (o loadOption) node(subkind byte) (dpNode, bool) {
	i := slices.IndexFunc(o.path, func(n dpNode) bool { return n.kind == dpMessaging && n.subkind == subkind })
	if i < 0 {
		return dpNode{}, false
	}
	return o.path[i], true
}

func (o loadOption) active() bool { return o.attributes&loadOptionActive != 0 }

// mac is the address in the MAC node: 32 bytes of which Ethernet uses six, then the interface type.
func (o loadOption) mac() (string, bool) {
	n, ok := o.node(dpMAC)
	if !ok || len(n.data) < 6 {
		return "", false
	}
	return net.HardwareAddr(n.data[:6]).String(), true
}

// method is how the option boots from the network over IPv4; ok is false for everything else.
func (o loadOption) method() (m Method, ok bool) {
	_, v4 := o.node(dpIPv4)
	_, v6 := o.node(dpIPv6)
	_, uri := o.node(dpURI)
	if _, mac := o.mac(); !mac || !v4 || v6 {
		return "", false
	}
	if uri {
		return HTTP, true
	}
	return PXE, true
}

// target describes what the option boots; "" if it is not a network boot that we know.
func (o loadOption) target() string {
	m, ok := o.method()
	if !ok {
		return ""
	}
	mac, _ := o.mac()
	return string(m) + " " + mac
}

// findEntry picks the entry that boots the target: active ones before others, then by the firmware's boot
// order, then by number. Numbers alone mean nothing, because firmware hands them out anew.
func findEntry(entries []bootEntry, order []uint16, t Target) (bootEntry, bool) {
	var found []bootEntry
	for _, e := range entries {
		if e.boots(t) {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		return bootEntry{}, false
	}
	return slices.MinFunc(found, func(a, b bootEntry) int { return a.rank(order) - b.rank(order) }), true
}

func (e bootEntry) boots(t Target) bool {
	m, ok := e.option.method()
	if !ok || m != t.Method {
		return false
	}
	mac, _ := e.option.mac()
	return t.MAC == "" || strings.EqualFold(mac, t.MAC)
}

// rank is smaller for a better entry. Every number fits in 16 bits.
func (e bootEntry) rank(order []uint16) int {
	rank := int(e.number)
	if i := slices.Index(order, e.number); i >= 0 {
		rank = i - 1<<16
	}
	if !e.option.active() {
		rank += 1 << 20
	}
	return rank
}
