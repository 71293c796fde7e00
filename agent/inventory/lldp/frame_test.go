package lldp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// tlv is one type, length and value (IEEE Std 802.1AB-2016, figure 8-2).
func tlv(kind int, value string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(kind<<9|len(value))), value...)
}

// frame is an Ethernet frame to the nearest bridge.
func frame(tlvs ...[]byte) []byte {
	return append([]byte("\x01\x80\xc2\x00\x00\x0e\x02\x00\x00\x00\x00\x01\x88\xcc"), slices.Concat(tlvs...)...)
}

// named are the three TLVs that every frame begins with, of a switch that goes by names.
func named(chassis, port string) []byte {
	return slices.Concat(tlv(1, "\x07"+chassis), tlv(2, "\x05"+port), tlv(3, "\x00\x78"))
}

// The frame in testdata was sent by Debian 12's lldpd 1.0.16 (-S for the description) on one end of a pair of virtual
// Ethernet devices.
func TestParseARecordedFrame(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/lldpd-1.0.16.frame")
	if err != nil {
		t.Fatal(err)
	}
	n, leaving, err := Parse(raw)
	if err != nil || leaving {
		t.Fatalf("leaving %v, %v", leaving, err)
	}
	if n.Chassis != "02:00:5e:00:53:01" || n.Port != "02:00:5e:00:53:01" || n.PortDescription != "there" ||
		n.System != "leaf1" || !strings.Contains(n.Description, "Debian") || !slices.Contains(n.Addresses, "192.0.2.1") {
		t.Errorf("%+v", n)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	address := "\x05\x01\xc0\x00\x02\x01\x02\x00\x00\x00\x01\x00"
	for name, c := range map[string]struct {
		frame []byte
		want  Neighbour
	}{
		"addresses as identifiers": {
			frame(tlv(1, "\x04\x02\x00\x5e\x00\x53\x01"), tlv(2, "\x04\x01\xc0\x00\x02\x09"), tlv(3, "\x00\x78"), tlv(0, "")),
			Neighbour{Chassis: "02:00:5e:00:53:01", Port: "192.0.2.9"},
		},
		"all that is kept": {
			frame(named("leaf1", "Ethernet7"), tlv(4, "to r42-07"), tlv(5, "leaf1.example.net"), tlv(6, "EOS\n4.30"),
				tlv(7, "\x00\x14\x00\x04"), tlv(8, address), tlv(8, address), tlv(127, "\x00\x80\xc2\x01\x00\x64"),
				tlv(127, "\x00\x12\x0f\x01\x03\x6c\x03\x00\x10"), tlv(0, ""), make([]byte, 20)),
			Neighbour{Chassis: "leaf1", Port: "Ethernet7", PortDescription: "to r42-07", System: "leaf1.example.net",
				Description: "EOS 4.30", Addresses: []string{"192.0.2.1"}, VLAN: 100},
		},
		"no end": {frame(named("leaf1", "1")), Neighbour{Chassis: "leaf1", Port: "1"}},
		"bytes for a name": {
			frame(tlv(1, "\x07\x00\x01\xff"), tlv(2, "\x07\x1b[2J"), tlv(3, "\x00\x78")),
			Neighbour{Chassis: "0001ff", Port: "1b5b324a"},
		},
		"steers a terminal": {
			frame(named("leaf1", "1"), tlv(5, "a\x1b[31m\x00b")), Neighbour{Chassis: "leaf1", Port: "1", System: "a[31mb"},
		},
		"lies about an address": {
			frame(named("leaf1", "1"), tlv(8, "\xff\x01\xc0"), tlv(8, ""), tlv(8, "\x00\x01\x01"), tlv(8, "\x01\x01\x01"),
				tlv(127, "\x00\x80\xc2\x01")),
			Neighbour{Chassis: "leaf1", Port: "1"},
		},
	} {
		n, leaving, err := Parse(c.frame)
		if err != nil || leaving || !reflect.DeepEqual(n, c.want) {
			t.Errorf("%s: %+v, %v, %v", name, n, leaving, err)
		}
	}
	leaves := frame(tlv(1, "\x07leaf1"), tlv(2, "\x051"), tlv(3, "\x00\x00"))
	if _, leaving, err := Parse(leaves); !leaving || err != nil {
		t.Errorf("a time to live of 0: %v, %v", leaving, err)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, f := range map[string][]byte{
		"nothing": nil, "headers only": frame(), "another protocol": bytes.Replace(frame(named("a", "b")), []byte{0x88, 0xcc},
			[]byte{0x08, 0x00}, 1),
		"another order":          frame(tlv(2, "\x051"), tlv(1, "\x07a"), tlv(3, "\x00\x78")),
		"ends after the chassis": frame(tlv(1, "\x07a")), "an end too early": frame(tlv(1, "\x07a"), tlv(0, "")),
		"an identifier that is too long": frame(tlv(1, "\x07"+strings.Repeat("x", 256)), tlv(2, "\x051"), tlv(3, "\x00\x78")),
		"no identifier":                  frame(tlv(1, "\x07"), tlv(2, "\x051"), tlv(3, "\x00\x78")),
		"no time":                        frame(tlv(1, "\x07a"), tlv(2, "\x051"), tlv(3, "")),
		"two ports":                      frame(named("a", "b"), tlv(2, "\x05c")),
		"cut":                            frame(named("a", "b"), []byte{0x0a}),
		"longer than the frame":          frame(named("a", "b"), []byte{0x0b, 0xff, 'x'}),
	} {
		if n, _, err := Parse(f); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
}

// A flood of frames leaves the table bounded, and the first neighbours in it.
func TestAFloodLeavesABoundedTable(t *testing.T) {
	t.Parallel()
	var tab table
	for i := range 3 * MostNeighbours {
		tab.take(frame(named("leaf1", string(rune('a'+i))), tlv(6, strings.Repeat("x", 500))))
	}
	tab.take([]byte("no frame"))
	got := tab.neighbours()
	if len(got) != MostNeighbours || got[0].Port != "a" || len(got[0].Description) != mostText ||
		!strings.Contains(tab.fault(), "more than") {
		t.Errorf("%d neighbours, %q", len(got), tab.fault())
	}
	tab.take(frame(tlv(1, "\x07leaf1"), tlv(2, "\x05a"), tlv(3, "\x00\x00")))
	if got := tab.neighbours(); len(got) != MostNeighbours-1 || got[0].Port != "b" {
		t.Errorf("after one took itself back: %+v", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(
		frame(named("leaf1", "1"), tlv(5, "name"), tlv(8, "\x05\x01\xc0\x00\x02\x01\x02\x00\x00\x00\x01\x00"), tlv(0, "")),
	)
	f.Add(frame(tlv(1, "\x04\x02\x00\x5e\x00\x53\x01"), tlv(2, "\x04\x01\xc0\x00\x02\x09"), tlv(3, "\x00\x00")))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, _, err := Parse(b)
		if err != nil {
			return
		}
		if n.Chassis == "" || n.Port == "" || len(n.Addresses) > mostAddresses {
			t.Fatalf("%+v", n)
		}
		for _, s := range []string{n.Chassis, n.Port, n.System, n.Description, n.PortDescription} {
			if strings.ContainsAny(s, "\x00\x1b\n") || len(s) > 2*mostText+2 {
				t.Fatalf("%q", s)
			}
		}
	})
}
