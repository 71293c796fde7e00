package site

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/httpboot"
	"github.com/ingot-metal/ingot/agent/site/segment"
)

// The defaults of a segment.
const (
	defaultHTTPPort  = 8080
	defaultLeaseTime = time.Hour
)

// plan is a document in the form that the services take.
type plan struct {
	revision int64
	segments []segmentPlan
	// refused has the reasons why segments are not served, by name.
	refused map[string]string
	// problems are what was left out.
	problems []error
	// wanted are the blobs to have at hand, the most urgent first.
	wanted []string
	bmcs   []*fleetv1.BMCTarget
}

// segmentPlan is all that the services of one segment take.
type segmentPlan struct {
	segment segment.Segment
	doc     segment.Document
	view    httpboot.View
}

// readDocument decides what to serve: segments that make sense, on interfaces that this agent's own configuration
// allows, one segment on each.
func readDocument(doc *fleetv1.SiteDocument, allowed []string, httpPort int) plan {
	p := plan{revision: doc.GetRevision(), refused: map[string]string{}, bmcs: doc.GetBmcs()}
	assignments := p.assignments(doc)
	view := viewOf(doc)
	p.wanted = view.Blobs
	taken := map[string]string{}
	for _, raw := range doc.GetSegments() {
		s, err := readSegment(raw, httpPort)
		switch other, twice := taken[s.Interface]; {
		case err != nil:
		case !slices.Contains(allowed, s.Interface):
			err = fmt.Errorf("interface %s is not among site.interfaces of this agent's configuration", s.Interface)
		case twice:
			err = fmt.Errorf("interface %s serves segment %s already", s.Interface, other)
		}
		if err != nil {
			p.refused[raw.GetName()] = err.Error()
			continue
		}
		taken[s.Interface] = s.Name
		p.segments = append(p.segments, planSegment(s, doc.GetRevision(), assignments, view))
	}
	return p
}

// planSegment plans a segment with its own copy of the assignments: a machine may be on any segment.
func planSegment(s segment.Segment, revision int64, assignments []segment.Assignment, view httpboot.View) segmentPlan {
	own := slices.Clone(assignments)
	for i := range own {
		own[i].Segment = s.Name
		if !s.Network().Contains(own[i].Address) {
			own[i].Address = netip.Addr{}
		}
	}
	view.Assignments = own
	return segmentPlan{
		segment: s, view: view,
		doc: segment.Document{Revision: revision, Segments: []segment.Segment{s}, Assignments: own},
	}
}

// assignments returns one for each network card. It leaves out invalid ones: they must not affect the others.
func (p *plan) assignments(doc *fleetv1.SiteDocument) []segment.Assignment {
	var out []segment.Assignment
	owner := map[segment.MAC]string{}
	for _, raw := range doc.GetAssignments() {
		a, err := readAssignment(raw, doc)
		if err != nil {
			p.problems = append(p.problems, fmt.Errorf("assignment of machine %s: %w", raw.GetMachineId(), err))
			continue
		}
		for _, text := range raw.GetMacAddresses() {
			mac, err := segment.ParseMAC(text)
			if other, twice := owner[mac]; err == nil && twice {
				err = fmt.Errorf("network card %v is machine %s's too", mac, other)
			}
			if err != nil {
				p.problems = append(p.problems, fmt.Errorf("assignment of machine %s: %w", raw.GetMachineId(), err))
				continue
			}
			owner[mac] = raw.GetMachineId()
			a.MAC = mac
			out = append(out, a)
			a.Address = netip.Addr{} // one card has the fixed address
		}
	}
	return out
}

func readAssignment(raw *fleetv1.BootAssignment, doc *fleetv1.SiteDocument) (segment.Assignment, error) {
	a := segment.Assignment{
		MachineID: raw.GetMachineId(), OperationID: raw.GetOperationId(), Mode: segment.BootMode(raw.GetMode()),
		Token:    raw.GetToken(),
		Hostname: raw.GetHostname(), Revision: doc.GetRevision(),
	}
	if a.Mode != segment.BootDisk && !a.Boots() {
		return a, fmt.Errorf("mode %q is not installer, rescue or disk", a.Mode)
	}
	if a.Boots() && a.Token == "" {
		return a, errors.New("no boot token")
	}
	if m := raw.GetMedia(); m != nil {
		a.Media = &segment.MediaBoot{Secret: m.GetSecret()}
		if m.GetAddress() != "" {
			var err error
			if a.Media.Address, err = netip.ParsePrefix(m.GetAddress()); err != nil {
				return a, fmt.Errorf("address of the installer: %w", err)
			}
		}
	}
	if raw.GetAddress() != "" {
		var err error
		if a.Address, err = netip.ParseAddr(raw.GetAddress()); err != nil {
			return a, fmt.Errorf("fixed address: %w", err)
		}
	}
	return a, nil
}

// viewOf is what the boot servers of all segments have in common.
func viewOf(doc *fleetv1.SiteDocument) httpboot.View {
	v := httpboot.View{Controllers: doc.GetControllerAddresses()}
	add := func(digests ...string) {
		for _, d := range digests {
			if d != "" && !slices.Contains(v.Blobs, d) {
				v.Blobs = append(v.Blobs, d)
			}
		}
	}
	for _, f := range doc.GetInstallers() {
		v.Installers = append(v.Installers, httpboot.Installer{
			Arch: f.GetArch(), Kernel: f.GetKernelSha256(), Initrd: f.GetInitrdSha256(), UKI: f.GetUkiSha256(),
			Cmdline: f.GetCmdline(),
		})
		add(f.GetKernelSha256(), f.GetInitrdSha256(), f.GetUkiSha256())
	}
	for _, a := range doc.GetAssignments() {
		if a.GetMode() != string(segment.BootDisk) {
			add(a.GetPrefetchSha256()...)
		}
	}
	for _, p := range doc.GetPhoneHomes() {
		if len(p.GetSecretSha256()) == sha256.Size {
			v.PhoneHomes = append(v.PhoneHomes, httpboot.PhoneHome{
				MachineID: p.GetMachineId(), OperationID: p.GetOperationId(),
				SecretSHA256: [sha256.Size]byte(p.GetSecretSha256()),
			})
		}
	}
	return v
}

// readSegment fills in the defaults and checks the whole.
func readSegment(raw *fleetv1.Segment, httpPort int) (segment.Segment, error) {
	s := segment.Segment{
		Name: raw.GetName(), Interface: raw.GetInterface(), Mode: segment.Mode(raw.GetMode()),
		Discovery: segment.Discovery(raw.GetDiscovery()),
		LeaseTime: time.Duration(raw.GetLeaseSeconds()) * time.Second, HTTPPort: int(raw.GetHttpPort()),
	}
	if s.Mode == "" {
		s.Mode = segment.ModeDHCP
	}
	if s.Discovery == "" {
		s.Discovery = segment.DiscoveryReport
	}
	if s.LeaseTime == 0 {
		s.LeaseTime = defaultLeaseTime
	}
	if s.HTTPPort == 0 {
		s.HTTPPort = httpPort
	}
	var errs []error
	parse := func(what, text string) netip.Addr {
		if text == "" {
			return netip.Addr{}
		}
		a, err := netip.ParseAddr(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
		return a
	}
	var err error
	if s.Address, err = netip.ParsePrefix(raw.GetAddress()); err != nil {
		errs = append(errs, fmt.Errorf("address: %w", err))
	}
	s.PoolStart, s.PoolEnd = parse("pool_start", raw.GetPoolStart()), parse("pool_end", raw.GetPoolEnd())
	s.Router = parse("router", raw.GetRouter())
	for _, d := range raw.GetDns() {
		s.DNS = append(s.DNS, parse("dns", d))
	}
	// Relays of a controller that still stored some are not answered: the document has no subnet of their machines, and
	// the address pool is of another network.
	if len(errs) == 0 {
		errs = append(errs, s.Validate())
	}
	return s, errors.Join(errs...)
}
