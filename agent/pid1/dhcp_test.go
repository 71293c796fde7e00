package pid1

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

func answer(t *testing.T, change ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{
		dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 7)), dhcpv4.WithNetmask(net.CIDRMask(26, 32)),
		dhcpv4.WithRouter(net.IPv4(192, 0, 2, 1), net.IPv4(192, 0, 2, 2)), dhcpv4.WithDNS(net.IPv4(192, 0, 2, 53)),
		dhcpv4.WithOption(dhcpv4.OptHostName("node-7.example.org")), dhcpv4.WithLeaseTime(90),
	}, change...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestReadAnswer(t *testing.T) {
	t.Parallel()
	n, length, err := read(answer(t))
	if err != nil || length != 90*time.Second || n.Hostname != "node-7" ||
		n.Address != netip.MustParsePrefix("192.0.2.7/26") || n.Gateway != netip.MustParseAddr("192.0.2.1") ||
		string(resolvConf(n.DNS)) != "nameserver 192.0.2.53\n" {
		t.Errorf("%+v for %v, %v", n, length, err)
	}
	bare, err := dhcpv4.New(dhcpv4.WithYourIP(net.IPv4(10, 1, 2, 3)))
	if err != nil {
		t.Fatal(err)
	}
	n, length, err = read(bare)
	if err != nil || length != defaultLease || n.Address != netip.MustParsePrefix("10.1.2.3/8") || n.Gateway.IsValid() {
		t.Errorf("without options: %+v for %v, %v", n, length, err)
	}
}

func TestReadAnswerRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]dhcpv4.Modifier{
		"no address":   dhcpv4.WithYourIP(net.IPv4zero),
		"IPv6 address": dhcpv4.WithYourIP(net.ParseIP("2001:db8::1")),
		"broken mask":  dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionSubnetMask, []byte{255, 0, 255, 0})),
	} {
		if n, _, err := read(answer(t, change)); err == nil {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

func TestFirstLabel(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "", "node-7": "node-7", "node-7.example.org": "node-7", "-x": "", "a b": "", "a/b": "", "é": "",
	} {
		if got := firstLabel(name); got != want {
			t.Errorf("%q gives %q", name, got)
		}
	}
}
