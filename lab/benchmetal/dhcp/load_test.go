package main

import (
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

func TestFramesAreWhatTheySeem(t *testing.T) {
	t.Parallel()
	for kind, b := range map[dhcpv4.MessageType][]byte{
		dhcpv4.MessageTypeDiscover: discover(0x01020304),
		dhcpv4.MessageTypeRequest:  request(0x01020304, []byte{10, 77, 16, 1}, []byte{10, 77, 0, 1}),
	} {
		p, err := dhcpv4.FromBytes(b[atPayload:])
		if err != nil {
			t.Fatal(err)
		}
		if p.MessageType() != kind || p.ClientHWAddr.String() != "02:be:01:02:03:04" ||
			p.TransactionID.String() != "0x01020304" || !p.IsBroadcast() {
			t.Errorf("%s", p.Summary())
		}
		if kind == dhcpv4.MessageTypeRequest && (p.RequestedIPAddress().String() != "10.77.16.1" ||
			p.ServerIdentifier().String() != "10.77.0.1") {
			t.Errorf("%s", p.Summary())
		}
		var sum uint32
		for i := 14; i < 34; i += 2 {
			sum += uint32(b[i])<<8 | uint32(b[i+1])
		}
		if sum>>16+sum&0xffff != 0xffff {
			t.Errorf("checksum of the IP header: %x", sum)
		}
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	kind, server := answer([]byte{0, 1, 4, 255, 255, 0, 0, 53, 1, 5, 54, 4, 10, 77, 0, 1, 255, 53, 1, 2})
	if kind != 5 || string(server) != "\x0a\x4d\x00\x01" {
		t.Errorf("%d, %v", kind, server)
	}
	if kind, _ := answer([]byte{53, 9, 5}); kind != 0 {
		t.Errorf("options that are cut off: %d", kind)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	all := make([]result, 4)
	for i := range all {
		all[i] = result{name: "s", done: (4 - i) * 100, took: time.Second, p50: time.Millisecond, cpu: time.Second}
	}
	out := &strings.Builder{}
	if err := table(out, options{window: 8, duration: time.Second}, all); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "ingot / dnsmasq: 1.33 with leases on the disk, 2.00 in memory") {
		t.Error(text)
	}
}
