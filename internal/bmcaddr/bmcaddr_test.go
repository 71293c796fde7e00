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
	for _, good := range []string{"10.0.0.7", "10.0.0.7:443", "10.0.0.0/24", "fd00::/64", "fd00::7", "[fd00::7]:443", "bmc-7.example.org"} {
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

func TestParseTakesThePathOfASystem(t *testing.T) {
	a, err := bmcaddr.Parse("redfish://10.0.0.7:8443/redfish/v1/Systems/System_0")
	if err != nil || a.Host != "10.0.0.7" || a.Port != "8443" || a.System != "/redfish/v1/Systems/System_0" {
		t.Errorf("%+v, %v", a, err)
	}
	for _, s := range []string{
		"redfish://10.0.0.7/redfish/v1/Systems/../Managers", "redfish://10.0.0.7/redfish/v1/Systems/..", "redfish://10.0.0.7/x",
		"redfish://10.0.0.7/redfish/v1/Systems/a?b", "ipmi://10.0.0.7/redfish/v1/Systems/1", "10.0.0.7/redfish/v1/Systems/1",
		"redfish://u:p@10.0.0.7/redfish/v1/Systems/1",
	} {
		if a, err := bmcaddr.Parse(s); err == nil {
			t.Errorf("%s is taken: %+v", s, a)
		}
	}
}
