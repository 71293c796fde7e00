// Package accelerator distinguishes accelerators, whose memory holds a tenant's data, from the display chips of
// management controllers.
package accelerator

import (
	"slices"
	"strings"
)

// vendors make accelerators. The ids are those of the PCI SIG, four lower hex digits.
var vendors = []string{
	"10de", // NVIDIA
	"1002", // AMD
	"8086", // Intel
	"1da3", // Habana
	"1d95", // Graphcore
	"1ae0", // Google
	"1d0f", // Amazon
	"10ee", // Xilinx
	"17cb", // Qualcomm
	"19e5", // Huawei
	"1e52", // Tenstorrent
}

// nvidia has boards for computing that call themselves display adapters.
const nvidia = "10de"

// Is reports whether a PCI function is an accelerator: a vendor of accelerators has made it, and its class is one of
// computing: a 3D controller (0302), another display controller (0380) or a processing accelerator (12). class has six
// hex digits and vendor four, both lower case (PCI Code and ID Assignment Specification). A VGA adapter (0300) is a
// server's own display chip.
func Is(class, vendor string) bool {
	computes := slices.ContainsFunc([]string{"0302", "0380", "12"},
		func(p string) bool { return strings.HasPrefix(class, p) })
	return slices.Contains(vendors, vendor) && (computes || vendor == nvidia && strings.HasPrefix(class, "0300"))
}
