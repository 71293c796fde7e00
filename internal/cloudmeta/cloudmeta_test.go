package cloudmeta_test

import (
	"net/netip"
	"testing"

	"github.com/ingot-metal/ingot/internal/cloudmeta"
)

func TestServes(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"169.254.169.254": true, "169.254.170.2": true, "100.100.100.200": true, "168.63.129.16": true,
		"::ffff:169.254.169.254": true, "::ffff:6464:64c8": true, "64:ff9b::a9fe:a9fe": true, "::a9fe:a9fe": true,
		"2002:a9fe:a9fe::1": true, "fd00:ec2::254": true, "fd20:ce::254": true, "fe80::a9fe:a9fe%eth0": true,
		"100.100.100.201": false, "10.0.0.7": false, "fd00::7": false, "fe80::1%eth0": false, "::1": false, "127.0.0.1": false,
		"64:ff9b::a00:7": false, "2001:db8::a9fe:a9fe": false,
	} {
		if got := cloudmeta.Serves(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %t, want %t", address, got, want)
		}
	}
}
