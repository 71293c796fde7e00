package cmdline

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"

	"github.com/ingot-metal/ingot/agent/config"
	"github.com/ingot-metal/ingot/agent/state"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/doctor"
)

const (
	// discovers is how often another server is asked, and offerTime how long it may take to answer the first time. Each
	// time doubles: 7 s in all. dnsmasq looks for two seconds whether an address is free.
	discovers = 3
	offerTime = time.Second
	// pxeClass makes servers answer that serve network boot alone (UEFI specification, E.2: x86-64).
	pxeClass = "PXEClient:Arch:00007:UNDI:003016"
)

// checkOtherDHCP asks the network of a device for an address, as a machine does that boots from it. One lost packet is
// not taken for the absence of a server. This machine's own
// server does not hear that: a device does not receive what it sends.
func checkOtherDHCP(ctx context.Context, device string, proxy bool) doctor.Finding {
	client, err := nclient4.New(device, nclient4.WithTimeout(offerTime), nclient4.WithRetry(discovers))
	if errors.Is(err, os.ErrPermission) {
		return doctor.Warning("dhcp", "may not look for other DHCP servers", "run doctor as root")
	}
	if err != nil {
		return doctor.Fault("dhcp", device+": "+err.Error(), "ip link show "+device)
	}
	defer func() { _ = client.Close() }() // the socket is not used again
	offer, err := client.DiscoverOffer(ctx, dhcpv4.WithBroadcast(true),
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier(pxeClass)))
	if err != nil && !errors.Is(err, nclient4.ErrNoResponse) {
		return doctor.Fault("dhcp", device+": "+err.Error(), "ip link show "+device)
	}
	return judgeOffer(device, offer, proxy)
}

// judgeOffer rates the offer of another DHCP server, nil where none answered.
func judgeOffer(device string, offer *dhcpv4.DHCPv4, proxy bool) doctor.Finding {
	what := "no other DHCP server answers on " + device
	if offer != nil {
		what = "another DHCP server, " + offer.ServerIdentifier().String() + ", answers on " + device + " and offers " +
			offer.YourIPAddr.String()
	}
	switch {
	case proxy && offer == nil:
		return doctor.Fault("dhcp", what+", whose segment has mode proxy",
			"start that server, or have this one give the addresses: ingot site set, mode: dhcp")
	case !proxy && offer != nil:
		return doctor.Fault("dhcp", what, "stop that server, or have it give the addresses: ingot site set, mode: proxy")
	}
	return doctor.Well("dhcp", what)
}

// siteDocument is what the controller has last told a site's agent; nil where there is nothing yet.
func siteDocument(ctx context.Context, c config.Config) (doc *fleetv1.SiteDocument) {
	// A memory that cannot be read has a finding of its own: see checkState.
	_ = withStore(ctx, c, func(s *state.Store) (err error) {
		doc, err = s.Site().SiteDocument(ctx)
		return err
	})
	return doc
}

// proxied returns the devices on which another server assigns the addresses.
func proxied(doc *fleetv1.SiteDocument) map[string]bool {
	devices := map[string]bool{}
	for _, segment := range doc.GetSegments() {
		devices[segment.GetInterface()] = segment.GetMode() == "proxy"
	}
	return devices
}
