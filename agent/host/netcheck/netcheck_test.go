package netcheck

import (
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestJudgements(t *testing.T) {
	t.Parallel()
	up, down, outside := member{"a", true, true}, member{"b", true, false}, member{"c", false, false}
	ordered, left := probe{ordered: 9000, onLink: true}, probe{onLink: true}
	routed := probe{ordered: 9000}
	answered, lost, tooBig := echoed{answered: true}, echoed{}, echoed{tooBig: true, limit: 1400}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		got  Check
		want Result
	}{
		"all members up":          {judgeMembers([]member{up, up}), Pass},
		"one member down":         {judgeMembers([]member{up, down}), Warn},
		"all members down":        {judgeMembers([]member{down, down}), Fail},
		"one outside":             {judgeMembers([]member{up, outside}), Fail},
		"no state of LACP":        {judgePartner(partner{}, 2), Unknown},
		"no partner":              {judgePartner(partner{"00:00:00:00:00:00", 1}, 2), Warn},
		"a partner for one":       {judgePartner(partner{"52:54:00:00:00:01", 1}, 2), Warn},
		"a partner for both":      {judgePartner(partner{"52:54:00:00:00:01", 2}, 2), Pass},
		"no echo":                 {judgeMTU(ordered, 9000, lost, lost), Unknown},
		"full echo":               {judgeMTU(ordered, 9000, answered, answered), Pass},
		"lost":                    {judgeMTU(ordered, 9000, answered, lost), Fail},
		"lost, MTU left alone":    {judgeMTU(left, 1500, answered, lost), Warn},
		"too big on the link":     {judgeMTU(ordered, 9000, answered, tooBig), Fail},
		"a router says so":        {judgeMTU(routed, 9000, answered, tooBig), Pass},
		"says so without a limit": {judgeMTU(routed, 9000, answered, echoed{tooBig: true}), Pass},
		"swallowed by a router":   {judgeMTU(routed, 9000, answered, lost), Fail},
		"not sent":                {judgeMTU(ordered, 9000, echoed{err: broken}, lost), Unknown},
	} {
		if c.got.Result != c.want || c.got.Detail == "" {
			t.Errorf("%s: %s %q, want %s", name, c.got.Result, c.got.Detail, c.want)
		}
	}
}

// TestARPProbe: the frame of RFC 5227, 2.1.1, in the layout of RFC 826.
func TestARPProbe(t *testing.T) {
	t.Parallel()
	mac, err := net.ParseMAC("52:54:00:12:34:56")
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddr("192.0.2.7")
	frame := arpProbe(mac, address)
	const want = "ffffffffffff" + "525400123456" + "0806" + "0001" + "0800" + "06" + "04" + "0001" +
		"525400123456" + "00000000" + "000000000000" + "c0000207"
	if got := hex.EncodeToString(frame); got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	from := func(changes map[int]byte) []byte {
		f := append([]byte(nil), frame...)
		for at, b := range changes {
			f[at] = b
		}
		return f
	}
	sender := map[int]byte{28: 192, 29: 0, 30: 2, 31: 7}
	for name, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"another probe for it":         {frame, mac.String()},
		"a request from the address":   {from(sender), mac.String()},
		"a probe for another":          {from(map[int]byte{41: 8}), ""},
		"a request by another for it":  {from(map[int]byte{28: 192, 31: 9, 30: 2}), ""},
		"cut":                          {frame[:41], ""},
		"no ARP":                       {from(map[int]byte{13: 0}), ""},
		"no IPv4":                      {from(map[int]byte{17: 1}), ""},
		"nothing":                      {nil, ""},
		"an answer that we don't know": {from(map[int]byte{21: 2}), ""},
	} {
		if got := arpClaims(c.frame, address).String(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	c := Check{Name: Gateway, Subject: "eth0 2001:db8::1", Result: Fail, Detail: "why"}
	if c.Key() != "check.gateway.eth0_2001:db8::1" || !strings.HasSuffix(c.String(), "eth0 2001:db8::1: why") {
		t.Errorf("%s, %s", c.Key(), c)
	}
}

func FuzzARP(f *testing.F) {
	f.Add(arpProbe(net.HardwareAddr{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("192.0.2.7")))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if mac := arpClaims(frame, netip.MustParseAddr("192.0.2.7")); mac != nil && (len(mac) != 6 || len(frame) < arpLen) {
			t.Errorf("%s from %d bytes", mac, len(frame))
		}
		for _, e := range []*echoes{{}, {v6: true}} {
			_ = e.isReply(frame)
		}
	})
}
