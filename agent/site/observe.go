package site

import (
	"context"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/dhcp"
	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/segment"
)

// watch reports the state at intervals until ctx ends.
func (s *Service) watch(ctx context.Context) error {
	tick := s.cfg.Clock.NewTicker(s.cfg.Watch)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
			s.report()
		}
	}
}

// report hands over leases, segments and boot addresses; unchanged ones cost no call.
func (s *Service) report() {
	var leases []*fleetv1.SiteLease
	segments := []*fleetv1.SegmentObservation{}
	addresses := map[string]string{}
	for _, r := range s.list() {
		l, o := r.observe()
		leases = append(leases, l...)
		segments = append(segments, o)
		addresses[r.segment.Name] = strings.TrimPrefix(r.segment.HTTPBase(), "http://")
	}
	s.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(s.refused)) {
		segments = append(segments, &fleetv1.SegmentObservation{Segment: name, State: s.refused[name]})
	}
	s.mu.Unlock()
	s.reports.Leases(leases)
	s.reports.Segments(segments)
	s.reports.BootAddresses(addresses)
}

// observe returns the leases and the state of one segment.
func (r *segmentServer) observe() ([]*fleetv1.SiteLease, *fleetv1.SegmentObservation) {
	r.mu.Lock()
	d := r.dhcp
	o := &fleetv1.SegmentObservation{Segment: r.segment.Name, State: stateOf(r.state)}
	r.mu.Unlock()
	if d == nil {
		return nil, o
	}
	o.ForeignDhcpServer = foreignServer(r.segment.Mode, d.Status().Others)
	if r.segment.Mode != segment.ModeDHCP {
		return nil, o
	}
	all := d.Leases()
	leases := siteLeases(all)
	o.PoolSize, o.PoolUsed = poolSize(r.segment), int32(poolUsed(r.segment, all))
	return leases, o
}

// stateOf returns "up", or the services that are down, with the reasons.
func stateOf(services map[string]string) string {
	var down []string
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if why := services[name]; why != "" {
			down = append(down, name+": "+why)
		}
	}
	if len(down) == 0 {
		return "up"
	}
	return strings.Join(down, "; ")
}

// foreignServer is the DHCP server that must not be there, if there is one: any beside a full server, another proxy
// beside a proxy. Of several it is the one with the lowest address, so that the answer doesn't flicker.
func foreignServer(mode segment.Mode, others []dhcp.Other) string {
	var found netip.Addr
	for _, o := range others {
		if (mode == segment.ModeDHCP || o.Proxy) && (!found.IsValid() || o.Server.Less(found)) {
			found = o.Server
		}
	}
	if !found.IsValid() {
		return ""
	}
	return found.String()
}

func siteLeases(all []lease.Lease) []*fleetv1.SiteLease {
	var out []*fleetv1.SiteLease
	for _, l := range all {
		if l.State == lease.Bound {
			out = append(out, &fleetv1.SiteLease{
				Segment: l.Segment, MacAddress: l.MAC.String(), Address: l.Address.String(), ExpiresAt: timestamppb.New(l.Ends),
				Hostname: l.Hostname,
			})
		}
	}
	return out
}

// poolSize is how many addresses the pool has.
func poolSize(s segment.Segment) int32 {
	if !s.PoolStart.IsValid() || !s.PoolEnd.IsValid() {
		return 0
	}
	first, last := s.PoolStart.As4(), s.PoolEnd.As4()
	return int32(binary.BigEndian.Uint32(last[:]) - binary.BigEndian.Uint32(first[:]) + 1)
}

// poolUsed returns how many of them are not available now, but for those that only rest.
func poolUsed(s segment.Segment, all []lease.Lease) (n int) {
	for _, l := range all {
		if l.State != lease.Ended && s.PoolStart.IsValid() && !l.Address.Less(s.PoolStart) && !s.PoolEnd.Less(l.Address) {
			n++
		}
	}
	return n
}

// archNames are those of option 93 (RFC 4578 and the IANA registry) in the API.
var archNames = map[uint16]string{
	0: "bios", 6: "uefi-x86", 7: "uefi-x64", 9: "uefi-x64", 11: "uefi-arm64", 15: "uefi-x86", 16: "uefi-x64",
	19: "uefi-arm64",
}

func (r *segmentServer) unknownDHCP(u dhcp.Unknown) {
	report := &fleetv1.UnknownMachine{
		Segment: r.segment.Name, MacAddress: u.MAC.String(), Arch: archNames[uint16(u.Arch)],
		Vendor: printable(u.VendorClass),
		SeenAt: timestamppb.New(r.s.cfg.Clock.Now()),
	}
	if u.Program == dhcp.Plain {
		report.Arch = "" // it didn't say; zero means BIOS
	}
	if u.Address.IsValid() {
		report.Address = u.Address.String()
	}
	r.s.reports.Unknown(report)
}

// printable keeps what strangers say of themselves to a short line.
func printable(text string) string {
	clean := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, text)
	return clean[:min(len(clean), 64)]
}
