package site

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ingot-metal/ingot/agent/host/netdump"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/probe"
	"github.com/ingot-metal/ingot/agent/site/segment"
)

func (s *Service) newProber() *probe.Prober {
	return probe.New(probe.Config{
		Leased: s.leased, Neighbour: s.neighbour, Clock: s.cfg.Clock, Log: s.cfg.Log,
		Report: func(t probe.Target, a probe.Answer) {
			s.reports.Probe(&fleetv1.ProbeObservation{
				MachineId: t.MachineID, Address: textOf(a.Address), Answers: a.By != "", By: a.By, SeenAt: timestamppb.New(a.At),
			})
		},
	})
}

// Probes asks machines without an agent.
func (s *Service) Probes() *probe.Prober { return s.prober }

func textOf(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// ProbeTarget reads a machine to probe. Network cards and addresses that make no sense are left out.
func ProbeTarget(raw *fleetv1.ProbeTarget) probe.Target {
	t := probe.Target{MachineID: raw.GetMachineId()}
	for _, text := range raw.GetMacAddresses() {
		if mac, err := segment.ParseMAC(text); err == nil {
			t.MACs = append(t.MACs, mac)
		}
	}
	t.Address, _ = netip.ParseAddr(raw.GetAddress()) // the zero Addr of nothing
	return t
}

func probeTargets(list []*fleetv1.ProbeTarget) []probe.Target {
	var out []probe.Target
	for _, raw := range list {
		out = append(out, ProbeTarget(raw))
	}
	return out
}

// leased is the address that a network card holds on any of the segments.
func (s *Service) leased(mac segment.MAC) (netip.Addr, bool) {
	now := s.cfg.Clock.Now()
	for _, r := range s.list() {
		r.mu.Lock()
		d := r.dhcp
		r.mu.Unlock()
		if d == nil {
			continue
		}
		for _, l := range d.Leases() {
			if l.MAC == mac && l.State == lease.Bound && now.Before(l.Ends) {
				return l.Address, true
			}
		}
	}
	return netip.Addr{}, false
}

// neighbour is who answers for an address on one of the segments.
func (s *Service) neighbour(a netip.Addr) (probe.Neighbour, bool) {
	for _, r := range s.list() {
		if !r.segment.Address.Contains(a) {
			continue
		}
		link, err := netlink.LinkByName(r.segment.Interface)
		if err != nil {
			continue
		}
		list, err := netdump.Neighbours(link.Attrs().Index, netlink.FAMILY_V4)
		if err != nil {
			continue
		}
		for _, n := range list {
			if ip, ok := netip.AddrFromSlice(n.IP.To4()); ok && ip == a && n.State&settled != 0 {
				mac, ok := segment.MACOf(n.HardwareAddr)
				return probe.Neighbour{MAC: mac, Fresh: n.State&unix.NUD_REACHABLE != 0}, ok
			}
		}
	}
	return probe.Neighbour{}, false
}
