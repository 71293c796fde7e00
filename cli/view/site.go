package view

import (
	"fmt"
	"strconv"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Sites are the columns of `ingot site list`.
func (s Style) Sites(site *pb.Site) (cells, wide []Cell) {
	names := make([]string, 0, len(site.GetSegments()))
	for _, g := range site.GetSegments() {
		names = append(names, g.GetName())
	}
	return []Cell{
		{"SITE", site.GetSite()}, {"SEGMENTS", strings.Join(names, ",")}, {"AGENT_ID", site.GetAgentId()},
		{"REVISION", strconv.FormatInt(site.GetRevision(), 10)},
		{"APPLIED", strconv.FormatInt(site.GetAppliedRevision(), 10)}, {"APPLIED_AGE", Age(site.GetAppliedAt(), s.Now)},
	}, nil
}

// Site is the sheet of `ingot site get`.
func (s Style) Site(site *pb.Site) string {
	f := &Fields{}
	f.Add("Site", site.GetSite())
	f.Add("Agent", site.GetAgentId())
	f.Add("Revision", strconv.FormatInt(site.GetRevision(), 10))
	applied := strconv.FormatInt(site.GetAppliedRevision(), 10)
	if site.GetAppliedRevision() < site.GetRevision() {
		applied = s.Warn(applied + ", not the newest")
	}
	f.Add("Applied", applied)
	f.Add("AppliedAge", Age(site.GetAppliedAt(), s.Now))
	if site.GetSilentSince() != nil {
		f.Add("Silent", s.Bad("yes, heard last "+timeAgo(site.GetSilentSince(), s.Now)))
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

// Leases are the columns of `ingot site leases`.
func (s Style) Leases(l *pb.SiteLease) (cells, wide []Cell) {
	expires := Time(l.GetExpiresAt())
	if l.GetExpiresAt() != nil && s.Now.After(l.GetExpiresAt().AsTime()) {
		expires = "expired"
	}
	return []Cell{
		{"SEGMENT", l.GetSegment()}, {"ADDRESS", l.GetAddress()}, {"MAC_ADDRESS", l.GetMacAddress()},
		{"MACHINE_ID", l.GetMachineId()}, {"HOSTNAME", Clean(l.GetHostname())}, {"EXPIRES", expires},
	}, nil
}

// Discovered are the columns of `ingot site discovered`.
func (s Style) Discovered(m *pb.DiscoveredMachine) (cells, wide []Cell) {
	return []Cell{
		{"SITE", m.GetSite()}, {"SEGMENT", m.GetSegment()}, {"MAC_ADDRESS", m.GetMacAddress()},
		{"ADDRESS", m.GetAddress()}, {"ARCH", Clean(m.GetArch())}, {"VENDOR", Clean(m.GetVendor())},
		{"FIRST_SEEN", Time(m.GetFirstSeenAt())}, {"LAST_SEEN", Age(m.GetLastSeenAt(), s.Now)},
	}, nil
}

// Credentials are the columns of `ingot bmc credentials list`.
func (s Style) Credentials(c *pb.BMCCredentials) (cells, wide []Cell) {
	name := Clean(c.GetUsername())
	if name == "" {
		name = s.Warn("sealed with a lost key: set them again")
	}
	return []Cell{
		{"CREDENTIALS_REF", c.GetCredentialsRef()}, {"USERNAME", name}, {"VERSION", strconv.FormatInt(c.GetVersion(), 10)},
		{"UPDATED", Time(c.GetUpdatedAt())}, {"ALLOWED", Clean(shortList(c.GetAllowedEndpoints()))},
		{"NOTES", strings.Join(append(CredentialNotes(c), passwordNotes(c)...), ", ")},
	}, nil
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

// shortList joins the first few entries of a list, and adds the number of the others.
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

// BMCCertificates are the columns of `ingot bmc certificates`.
func (s Style) BMCCertificates(c *pb.BMCCertificate) (cells, wide []Cell) {
	return []Cell{
		{"SITE", c.GetSite()}, {"ENDPOINT", Clean(c.GetEndpoint())}, {"MACHINES", shortList(c.GetMachineIds())},
		{"TRUSTED_SHA256", c.GetSha256()}, {"OFFERED_SHA256", c.GetOfferedSha256()}, {"OFFERED", Time(c.GetOfferedAt())},
	}, nil
}

// DiscoveredBMCs are the columns of `ingot discover`.
func (s Style) DiscoveredBMCs(b *pb.DiscoveredBMC) (cells, wide []Cell) {
	_, address, ok := strings.Cut(b.GetEndpoint(), "://")
	if !ok {
		address = b.GetEndpoint()
	}
	problem := Clean(b.GetProblem())
	if problem != "" {
		problem = s.Warn(problem)
	}
	return []Cell{
		{"ADDRESS", Clean(address)}, {"PROTOCOL", Clean(b.GetProtocol())}, {"VENDOR", Clean(b.GetVendor())},
		{"MODEL", Clean(b.GetModel())}, {"SERIAL", Clean(b.GetSerialNumber())},
		{"MAC_ADDRESSES", Clean(shortList(b.GetMacAddresses()))}, {"MACHINE", b.GetMachineId()}, {"PROBLEM", problem},
	}, nil
}
