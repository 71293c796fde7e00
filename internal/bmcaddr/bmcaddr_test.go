package bmcaddr_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/bmcaddr"
)

func TestAllowanceCoversExactHostsAndNetworks(t *testing.T) {
	for _, c := range []struct {
		allowed, endpoint string
		want              bool
	}{
		{"10.0.0.7", "10.0.0.7", true},
		{"10.0.0.7", "redfish://10.0.0.7:8443", true},
		{"10.0.0.7:443", "10.0.0.7:443", true},
		{"10.0.0.7:443", "10.0.0.7:444", false},
		{"10.0.0.7:443", "10.0.0.7", false},
		{"10.0.0.7", "10.0.0.8", false},
		{"10.0.0.0/24", "ipmi://10.0.0.255", true},
		{"10.0.0.0/24", "10.0.1.0", false},
		{"10.0.0.0/24", "[::ffff:10.0.0.9]:443", true},
		{"0.0.0.0/0", "bmc.example.org", false},
		{"10.0.0.0/24", "10.0.0.7.example.org", false},
		{"bmc-7.example.org", "redfish+http://BMC-7.example.org", true},
		{"bmc-7.example.org", "bmc-7.example.org.evil.net", false},
		{"example.org", "bmc.example.org", false},
		{"fd00::/64", "[fd00::7]:443", true},
		{"fd00::7", "[fd00:0::7]", true},
		{"fd00::/64", "[fd01::7]", false},
		{"", "10.0.0.7", false},
		{"", "", false},
	} {
		a, err := bmcaddr.Parse(c.endpoint)
		if err != nil && c.endpoint != "" {
			t.Errorf("parse %s: %v", c.endpoint, err)
		}
		if got := (bmcaddr.Allowance{c.allowed}).Covers(a); got != c.want {
			t.Errorf("%q covers %q: %t, want %t", c.allowed, c.endpoint, got, c.want)
		}
	}
	if (bmcaddr.Allowance{}).Covers(bmcaddr.Address{Host: "10.0.0.7"}) {
		t.Error("an empty allowance covers something")
	}
}

func TestEntriesOfAllowances(t *testing.T) {
	for _, good := range []string{"10.0.0.7", "10.0.0.7:443", "10.0.0.0/24", "fd00::/64", "fd00::7", "[fd00::7]:443",
		"bmc-7.example.org"} {
		if err := bmcaddr.CheckEntry(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"": "host", "10.0.0.1/24": "10.0.0.0/24", "redfish://10.0.0.1": "network", "*.example.org/": "network",
		"admin:pw@10.0.0.7": "credentials", "10.0.0.7:0": "port", "a b": "host",
	} {
		if err := bmcaddr.CheckEntry(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
	if _, err := bmcaddr.Parse("ftp://10.0.0.1"); !errors.Is(err, bmcaddr.ErrScheme) {
		t.Error(err)
	}
}

// Source: RFC 4007, 11 (addresses with a zone) and RFC 6874 (the same in a URL).
func TestAddressesMayHaveAZone(t *testing.T) {
	for in, want := range map[string]bmcaddr.Address{
		"fe80::1%eth0":                               {Host: "fe80::1%eth0"},
		"[FE80::1%Eth0.7]:8443":                      {Host: "fe80::1%Eth0.7", Port: "8443"},
		"redfish://[fe80::1%eth0]":                   {Scheme: "redfish", Host: "fe80::1%eth0"},
		"redfish://[fe80::1%25eth0]:8443/":           {Scheme: "redfish", Host: "fe80::1%eth0", Port: "8443"},
		"ipmi://[fe80::1%25bond0.20]":                {Scheme: "ipmi", Host: "fe80::1%bond0.20"},
		"redfish://[fe80::1%2]/redfish/v1/Systems/1": {Scheme: "redfish", Host: "fe80::1%2", System: "/redfish/v1/Systems/1"},
	} {
		if a, err := bmcaddr.Parse(in); err != nil || a != want {
			t.Errorf("%s: %+v, %v; want %+v", in, a, err, want)
		}
	}
	for _, bad := range []string{
		"fe80::1%", "fe80::1%a/b", "[fe80::1%a b]", "192.0.2.7%eth0", "bmc%eth0", "[fe80::1%eth0",
		"fe80::1%longer-than-fifteen", "fe80::1%a%b",
	} {
		if a, err := bmcaddr.Parse(bad); err == nil {
			t.Errorf("%s is taken: %+v", bad, a)
		}
	}
	for _, c := range []struct {
		allowed, endpoint string
		want              bool
	}{
		{"fe80::1%eth0", "redfish://[fe80::1%25eth0]:443", true},
		{"[fe80::1%eth0]:443", "redfish://[fe80:0::1%eth0]:443", true},
		{"fe80::1%eth0", "fe80::1%eth1", false},
		{"fe80::1", "fe80::1%eth0", false},
		{"fe80::1%eth0", "fe80::1", false},
		{"fe80::/10", "fe80::1%eth0", false}, // a network is on no particular interface
	} {
		a, err := bmcaddr.Parse(c.endpoint)
		if err != nil || bmcaddr.CheckEntry(c.allowed) != nil {
			t.Errorf("%s, %s: %v", c.allowed, c.endpoint, err)
		}
		if got := (bmcaddr.Allowance{c.allowed}).Covers(a); got != c.want {
			t.Errorf("%q covers %q: %t, want %t", c.allowed, c.endpoint, got, c.want)
		}
	}
}

func TestParseTakesThePathOfASystem(t *testing.T) {
	a, err := bmcaddr.Parse("redfish://10.0.0.7:8443/redfish/v1/Systems/System_0")
	if err != nil || a.Host != "10.0.0.7" || a.Port != "8443" || a.System != "/redfish/v1/Systems/System_0" {
		t.Errorf("%+v, %v", a, err)
	}
	for _, s := range []string{
		"redfish://10.0.0.7/redfish/v1/Systems/../Managers", "redfish://10.0.0.7/redfish/v1/Systems/..",
		"redfish://10.0.0.7/x",
		"redfish://10.0.0.7/redfish/v1/Systems/a?b", "ipmi://10.0.0.7/redfish/v1/Systems/1", "10.0.0.7/redfish/v1/Systems/1",
		"redfish://u:p@10.0.0.7/redfish/v1/Systems/1",
	} {
		if a, err := bmcaddr.Parse(s); err == nil {
			t.Errorf("%s is taken: %+v", s, a)
		}
	}
}

func TestMetadataServicesAreNoBMCs(t *testing.T) {
	for _, in := range []string{
		"169.254.169.254", "redfish+http://169.254.169.254:80", "ipmi://100.100.100.200", "[::ffff:169.254.169.254]:443",
		"redfish://[64:ff9b::a9fe:a9fe]", "fd00:ec2::254", "[fe80::a9fe:a9fe%eth0]", "169.254.3.1",
	} {
		if a, err := bmcaddr.Parse(in); !errors.Is(err, bmcaddr.ErrMetadata) {
			t.Errorf("%s: %+v, %v", in, a, err)
		}
	}
	if got, err := bmcaddr.Expand([]string{"100.100.100.200/30"}); err != nil || len(got) != 2 {
		t.Errorf("expanded: %v, %v", got, err)
	}
	for _, in := range []string{"169.254.169.254", "100.100.100.200", "169.254.169.0/24"} {
		if got, err := bmcaddr.Expand([]string{in}); !errors.Is(err, bmcaddr.ErrMetadata) {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
}
