package dhcp

import (
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ingot-metal/ingot/agent/site/segment"
)

// Boot is what the firmware of a machine is told to load; with no File it is told nothing.
type Boot struct {
	Program Program
	// File is a name on the TFTP server for PXE, else a URL.
	File string
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

// bootsHere says whether a card is to boot from the network of this segment.
func bootsHere(s segment.Segment, a segment.Assignment, known bool) bool {
	if !known {
		return s.Discovery == segment.DiscoveryBoot
	}
	return a.Boots() && a.Segment == s.Name
}

// bootOf decides what a client is told to load.
func bootOf(s segment.Segment, files map[iana.Arch]string, r Request, a segment.Assignment, known bool) Boot {
	if r.Program == Plain || !bootsHere(s, a, known) {
		return Boot{}
	}
	switch r.Program {
	case IPXE:
		return Boot{Program: IPXE, File: s.HTTPBase() + "/boot/auto.ipxe?mac=" + r.MAC.String()}
	case HTTP:
		if !httpArch(r.Arch) {
			return Boot{}
		}
		file := s.HTTPBase() + "/boot/auto.efi?mac=" + r.MAC.String()
		if r.Arch == iana.EFI_ARM64_HTTP {
			file += "&arch=arm64"
		}
		return Boot{Program: HTTP, File: file}
	}
	return Boot{Program: PXE, File: files[r.Arch]}
}

// httpArch says whether UEFI firmware of this architecture has something to load from us: x64 (15 is what some of it
// says, by an older reading of RFC 5970) and arm64.
func httpArch(a iana.Arch) bool {
	return a == iana.EFI_X86_HTTP || a == iana.EFI_X86_64_HTTP || a == iana.EFI_ARM64_HTTP
}
