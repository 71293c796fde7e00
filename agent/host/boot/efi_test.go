package boot

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"unicode/utf16"
)

// Bytes as firmware writes them, put together by hand.

func node(kind, subkind byte, data ...byte) []byte {
	b := []byte{kind, subkind}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(data)+4))
	return append(b, data...)
}

func pciNode() []byte { return node(1, 1, 0x00, 0x1c) }
func macNode(last byte) []byte {
	data := make([]byte, 33)
	copy(data, []byte{0x52, 0x54, 0x00, 0x12, 0x34, last})
	data[32] = 1 // Ethernet
	return node(3, 11, data...)
}
func ipv4Node() []byte        { return node(3, 12, make([]byte, 23)...) }
func ipv6Node() []byte        { return node(3, 13, make([]byte, 56)...) }
func uriNode() []byte         { return node(3, 24) }
func diskNode() []byte        { return node(4, 1, make([]byte, 38)...) }
func endNode() []byte         { return node(0x7f, 0xff) }
func endInstance() []byte     { return node(0x7f, 0x01) }
func path(n ...[]byte) []byte { return slices.Concat(n...) }

func option(attributes uint32, description string, devicePath []byte, extra ...byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, attributes)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(devicePath)))
	for _, u := range append(utf16.Encode([]rune(description)), 0) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return append(append(b, devicePath...), extra...)
}

func TestParseLoadOption(t *testing.T) {
	t.Parallel()
	good := option(1, "UEFI PXEv4 (MAC:525400123456)", path(pciNode(), macNode(0x56), ipv4Node(), endNode()), 0xde, 0xad)
	for _, tc := range []struct {
		name   string
		in     []byte
		target string
		fails  bool
	}{
		{"pxe over IPv4", good, "pxe 52:54:00:12:34:56", false},
		{"http over IPv4", option(1, "HTTPv4", path(pciNode(), macNode(0x56), ipv4Node(), uriNode(), endNode())),
			"http 52:54:00:12:34:56", false},
		{"pxe over IPv6", option(1, "PXEv6", path(pciNode(), macNode(0x56), ipv6Node(), endNode())), "", false},
		{"disk", option(1, "debian", path(pciNode(), diskNode(), endNode())), "", false},
		{"IPv4 without MAC", option(1, "odd", path(pciNode(), ipv4Node(), endNode())), "", false},
		{"short MAC node", option(1, "odd", path(node(3, 11, 1, 2), ipv4Node(), endNode())), "", false},
		{"only the first instance counts",
			option(1, "two", path(pciNode(), diskNode(), endInstance(), macNode(1), ipv4Node(), endNode())), "", false},
		{"beyond the BMP", option(1, "disk 🖴", path(diskNode(), endNode())), "", false},
		{"empty", nil, "", true},
		{"header only", []byte{1, 0, 0, 0, 0, 0}, "", true},
		{"no end of description", []byte{1, 0, 0, 0, 0, 0, 'a', 0, 'b'}, "", true},
		{"path longer than the bytes", good[:len(good)-10], "", true},
		{"path without end", option(1, "x", path(pciNode(), macNode(1))), "", true},
		{"empty path", option(1, "x", nil), "", true},
		{"node of length 3", option(1, "x", []byte{3, 11, 3, 0, 0x7f, 0xff, 4, 0}), "", true},
		{"node of length 0", option(1, "x", []byte{3, 11, 0, 0}), "", true},
		{"node past the end", option(1, "x", []byte{3, 11, 200, 0, 1}), "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o, err := parseLoadOption(tc.in)
			if errors.Is(err, errEFI) != tc.fails {
				t.Fatalf("error %v, want one: %v", err, tc.fails)
			}
			if err == nil && o.target() != tc.target {
				t.Errorf("target %q, want %q", o.target(), tc.target)
			}
		})
	}
	o, err := parseLoadOption(good)
	if err != nil || o.description != "UEFI PXEv4 (MAC:525400123456)" || !o.active() || len(o.path) != 3 {
		t.Errorf("got %+v, %v", o, err)
	}
}

func FuzzParseLoadOption(f *testing.F) {
	f.Add(option(1, "UEFI PXEv4", path(pciNode(), macNode(0x56), ipv4Node(), endNode())))
	f.Add(option(0, "", nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseLoadOption(b)
		if err == nil && o.target() != "" && len(b) < 6+2+37+27 {
			t.Errorf("found %s in %d bytes", o.target(), len(b))
		}
	})
}

func entry(t *testing.T, number uint16, raw []byte) bootEntry {
	t.Helper()
	o, err := parseLoadOption(raw)
	if err != nil {
		t.Fatal(err)
	}
	return bootEntry{number: number, option: o}
}

func TestFindEntry(t *testing.T) {
	t.Parallel()
	pxe := func(mac byte) []byte { return path(pciNode(), macNode(mac), ipv4Node(), endNode()) }
	entries := []bootEntry{
		entry(t, 0, option(1, "debian", path(diskNode(), endNode()))),
		entry(t, 1, option(0, "PXE, switched off", pxe(1))),
		entry(t, 2, option(1, "PXE 2", pxe(2))),
		entry(t, 3, option(1, "PXE 3", pxe(3))),
		entry(t, 4, option(1, "HTTP 2", path(pciNode(), macNode(2), ipv4Node(), uriNode(), endNode()))),
		entry(t, 5, option(1, "PXEv6", path(pciNode(), macNode(2), ipv6Node(), endNode()))),
		entry(t, 0x1a, option(1, "PXE 2 again", pxe(2))),
	}
	for _, tc := range []struct {
		name   string
		order  []uint16
		target Target
		want   string
	}{
		{"the first of the boot order", []uint16{0, 3, 2}, Target{Method: PXE}, "Boot0003"},
		{"an active one before the first in order", []uint16{1, 2, 3}, Target{Method: PXE}, "Boot0002"},
		{"by MAC, in order", []uint16{0x1a, 2}, Target{Method: PXE, MAC: "52:54:00:12:34:02"}, "Boot001A"},
		{"outside the order, the lowest number", nil, Target{Method: PXE, MAC: "52:54:00:12:34:02"}, "Boot0002"},
		{"a switched-off one if there is no other", nil, Target{Method: PXE, MAC: "52:54:00:12:34:01"}, "Boot0001"},
		{"http", []uint16{2}, Target{Method: HTTP}, "Boot0004"},
		{"no such card", nil, Target{Method: PXE, MAC: "52:54:00:12:34:99"}, ""},
		{"no such method for the card", nil, Target{Method: HTTP, MAC: "52:54:00:12:34:03"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if e, ok := findEntry(entries, tc.order, tc.target); ok {
				got = e.name()
			}
			if got != tc.want {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
}
