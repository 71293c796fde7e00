package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Sites is the table of `ingot site list`.
func (s Style) Sites(sites []*pb.Site, now time.Time) *Table {
	t := &Table{Header: []string{"SITE", "SEGMENTS", "AGENT_ID", "REVISION", "APPLIED", "APPLIED_AGE"}}
	for _, site := range sites {
		names := make([]string, 0, len(site.GetSegments()))
		for _, g := range site.GetSegments() {
			names = append(names, g.GetName())
		}
		t.Add(site.GetSite(), strings.Join(names, ","), site.GetAgentId(), strconv.FormatInt(site.GetRevision(), 10),
			strconv.FormatInt(site.GetAppliedRevision(), 10), Age(site.GetAppliedAt(), now))
	}
	return t
}

// Site is the sheet of `ingot site get`.
func (s Style) Site(site *pb.Site, now time.Time) string {
	f := &Fields{}
	f.Add("Site", site.GetSite())
	f.Add("Agent", site.GetAgentId())
	f.Add("Revision", strconv.FormatInt(site.GetRevision(), 10))
	applied := strconv.FormatInt(site.GetAppliedRevision(), 10)
	if site.GetAppliedRevision() < site.GetRevision() {
		applied = s.Warn(applied + ", not the newest")
	}
	f.Add("Applied", applied)
	f.Add("AppliedAge", Age(site.GetAppliedAt(), now))
	if site.GetSilentSince() != nil {
		f.Add("Silent", s.Bad("yes, heard last "+timeAgo(site.GetSilentSince(), now)))
	}
	if len(site.GetSegments()) == 0 {
		return f.String()
	}
	t := &Table{Header: []string{"SEGMENT", "INTERFACE", "ADDRESS", "MODE", "POOL", "USED", "DISCOVERY", "STATE",
		"FOREIGN_DHCP"}}
	for _, g := range site.GetSegments() {
		pool, used := "", ""
		if g.GetPoolStart() != "" {
			pool = g.GetPoolStart() + "-" + g.GetPoolEnd()
		}
		if g.GetPoolSize() > 0 {
			used = fmt.Sprintf("%d/%d", g.GetPoolUsed(), g.GetPoolSize())
		}
		t.Add(g.GetName(), g.GetInterface(), g.GetAddress(), g.GetMode(), pool, used, g.GetDiscovery(), Clean(g.GetState()),
			s.Warn(Clean(g.GetForeignDhcpServer())))
	}
	return f.String() + "\n" + t.String()
}

// Leases is the table of `ingot site leases`.
func (s Style) Leases(leases []*pb.SiteLease, now time.Time) *Table {
	t := &Table{Header: []string{"SEGMENT", "ADDRESS", "MAC_ADDRESS", "MACHINE_ID", "HOSTNAME", "EXPIRES"}}
	for _, l := range leases {
		expires := Time(l.GetExpiresAt())
		if l.GetExpiresAt() != nil && now.After(l.GetExpiresAt().AsTime()) {
			expires = "expired"
		}
		t.Add(l.GetSegment(), l.GetAddress(), l.GetMacAddress(), l.GetMachineId(), Clean(l.GetHostname()), expires)
	}
	return t
}

// Discovered is the table of `ingot site discovered`.
func (s Style) Discovered(machines []*pb.DiscoveredMachine, now time.Time) *Table {
	t := &Table{Header: []string{"SITE", "SEGMENT", "MAC_ADDRESS", "ADDRESS", "ARCH", "VENDOR", "FIRST_SEEN", "LAST_SEEN"}}
	for _, m := range machines {
		t.Add(m.GetSite(), m.GetSegment(), m.GetMacAddress(), m.GetAddress(), Clean(m.GetArch()), Clean(m.GetVendor()),
			Time(m.GetFirstSeenAt()), Age(m.GetLastSeenAt(), now))
	}
	return t
}

// Credentials is the table of `ingot bmc credentials list`.
func (s Style) Credentials(list []*pb.BMCCredentials) *Table {
	t := &Table{Header: []string{"CREDENTIALS_REF", "USERNAME", "VERSION", "UPDATED", "ALLOWED", "NOTES"}}
	for _, c := range list {
		name := Clean(c.GetUsername())
		if name == "" {
			name = s.Warn("sealed with a lost key: set them again")
		}
		t.Add(c.GetCredentialsRef(), name, strconv.FormatInt(c.GetVersion(), 10), Time(c.GetUpdatedAt()),
			Clean(shortList(c.GetAllowedEndpoints())),
			strings.Join(append(CredentialNotes(c), passwordNotes(c)...), ", "))
	}
	return t
}

// passwordNotes say where the password is another one.
func passwordNotes(c *pb.BMCCredentials) []string {
	var notes []string
	if n := c.GetOwnPasswords(); n > 0 {
		notes = append(notes, fmt.Sprintf("machines with their own password: %d", n))
	}
	if open := c.GetOpenPasswords(); len(open) > 0 {
		notes = append(notes, "changes that are open: "+Clean(shortList(open)))
	}
	return notes
}

// shortList joins the first few entries of a list, and says how many more there are.
func shortList(all []string) string {
	const most = 3
	if len(all) <= most {
		return strings.Join(all, " ")
	}
	return strings.Join(all[:most], " ") + fmt.Sprintf(" and %d more", len(all)-most)
}

// CredentialNotes are what an admin should know of credentials.
func CredentialNotes(c *pb.BMCCredentials) []string {
	var notes []string
	if c.GetAdopted() {
		notes = append(notes, "adopted")
	}
	if c.GetAllowPlainHttp() {
		notes = append(notes, "plain HTTP")
	}
	if c.GetAllowUnverifiedTls() {
		notes = append(notes, "unverified TLS")
	}
	return notes
}

// BMCCertificates is the table of `ingot bmc certificates`.
func (s Style) BMCCertificates(list []*pb.BMCCertificate) *Table {
	t := &Table{Header: []string{"SITE", "ENDPOINT", "MACHINES", "TRUSTED_SHA256", "OFFERED_SHA256", "OFFERED"}}
	for _, c := range list {
		t.Add(c.GetSite(), Clean(c.GetEndpoint()), shortList(c.GetMachineIds()), c.GetSha256(), c.GetOfferedSha256(),
			Time(c.GetOfferedAt()))
	}
	return t
}

// DiscoveredBMCs is the table of `ingot discover`.
func (s Style) DiscoveredBMCs(list []*pb.DiscoveredBMC) *Table {
	t := &Table{
		Header: []string{"ADDRESS", "PROTOCOL", "VENDOR", "MODEL", "SERIAL", "MAC_ADDRESSES", "MACHINE", "PROBLEM"},
	}
	for _, b := range list {
		_, address, ok := strings.Cut(b.GetEndpoint(), "://")
		if !ok {
			address = b.GetEndpoint()
		}
		problem := Clean(b.GetProblem())
		if problem != "" {
			problem = s.Warn(problem)
		}
		t.Add(Clean(address), Clean(b.GetProtocol()), Clean(b.GetVendor()), Clean(b.GetModel()), Clean(b.GetSerialNumber()),
			Clean(shortList(b.GetMacAddresses())), b.GetMachineId(), problem)
	}
	return t
}
