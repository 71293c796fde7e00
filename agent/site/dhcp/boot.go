package dhcp

import (
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ingot-metal/ingot/agent/site/segment"
)

// Boot has the boot options for a machine's firmware; the zero value has none.
type Boot struct {
	Program Program
	// File is what to load: a name on the TFTP server for PXE, else a URL.
	File string
	// Local makes firmware and iPXE go on to the next boot device. Without it UEFI waits a minute or more for a better
	// offer, and iPXE waits for a proxy's answer.
	Local bool
}

// DefaultFiles are the names that PXE firmware gets over TFTP, by its architecture: iPXE with the drivers of the
// firmware itself (UNDI, SNP), which work on any card that got this far.
func DefaultFiles() map[iana.Arch]string {
	return map[iana.Arch]string{
		iana.INTEL_X86PC: "undionly.kpxe",
		iana.EFI_X86_64:  "snponly.efi",
		iana.EFI_BC:      "snponly.efi",
		iana.EFI_ARM64:   "snponly-arm64.efi",
	}
}

// bootsHere reports whether a card is to boot from the network of this segment.
func bootsHere(s segment.Segment, a segment.Assignment, known bool) bool {
	if !known {
		return s.Discovery == segment.DiscoveryBoot
	}
	return a.NetBoots() && a.Segment == s.Name
}

// bootOf returns the boot options of a client. Beside another server only machines that we know are sent to their disk:
// the others may be that server's business.
func bootOf(s segment.Segment, files map[iana.Arch]string, r Request, a segment.Assignment, known bool) Boot {
	file := ""
	if bootsHere(s, a, known) {
		file = fileFor(s, files, r)
	}
	full := s.Mode == segment.ModeDHCP
	switch {
	case file != "":
		return Boot{Program: r.Program, File: file}
	case r.Program == Plain || r.Program == IPXE && !(known && full):
		return Boot{}
	case known || full:
		return Boot{Program: r.Program, Local: true}
	}
	return Boot{}
}

// fileFor returns the file for a boot program; "" when we have none for it.
func fileFor(s segment.Segment, files map[iana.Arch]string, r Request) string {
	switch {
	case r.Program == IPXE:
		return s.HTTPBase() + "/boot/auto.ipxe?mac=" + r.MAC.String()
	case r.Program == HTTP && httpArch(r.Arch):
		return s.HTTPBase() + "/boot/auto.efi?mac=" + r.MAC.String()
	case r.Program == PXE:
		return files[r.Arch]
	}
	return ""
}

// httpArch reports whether UEFI firmware of this architecture has something to load from us: x64 (some firmware sends
// 15, by an older reading of RFC 5970) and arm64.
func httpArch(a iana.Arch) bool {
	return a == iana.EFI_X86_HTTP || a == iana.EFI_X86_64_HTTP || a == iana.EFI_ARM64_HTTP
}
