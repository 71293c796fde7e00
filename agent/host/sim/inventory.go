package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"

	"github.com/ingot-metal/ingot/agent/inventory"
)

// Vendor is the make of every simulated machine.
const Vendor = "Ingot simulated host"

const gib = 1 << 30

// Inventory is made up from the machine's id, the same every time.
func (m *Machine) Inventory(ctx context.Context) (inventory.Document, error) {
	st, err := m.running(ctx)
	if err != nil {
		return inventory.Document{}, err
	}
	doc := inventory.Document{
		CollectedAt: m.world.cfg.Clock.Now(), Simulated: true,
		System: inventory.System{Vendor: Vendor, Product: "Simulated machine", Serial: "SIM-" + m.id,
			UUID: seedHex(m.id, "uuid")[:32]},
		CPU: inventory.CPU{Architecture: runtime.GOARCH, Vendor: Vendor, Model: "Simulated CPU", Sockets: 1, Cores: 8,
			Threads: 16},
		Memory: inventory.Memory{TotalBytes: 64 * gib, UsableBytes: 63 * gib, DIMMs: []inventory.DIMM{
			{Locator: "DIMM_A1", SizeBytes: 32 * gib, SpeedMTs: 4800, Type: "DDR5", Manufacturer: Vendor,
				Serial: seedHex(m.id, "A1")[:8]},
			{Locator: "DIMM_B1", SizeBytes: 32 * gib, SpeedMTs: 4800, Type: "DDR5", Manufacturer: Vendor,
				Serial: seedHex(m.id, "B1")[:8]},
		}},
		Disks: []inventory.Disk{{Name: "simdisk0", Model: "Simulated disk", Serial: st.Disk.Disk, SizeBytes: diskBytes,
			Transport: "nvme"}},
		Firmware: []inventory.Firmware{
			{Component: "bios", Version: "sim-1.0"},
		},
		BMC: &inventory.BMC{Present: true},
		OS: inventory.OS{
			Name: Vendor, ID: "ingot-sim", Version: "1", Kernel: "simulated", Hostname: st.Hostname, MachineID: st.OSMachineID,
			BootID: st.BootID, FirmwareIs: "uefi", ImageDigest: st.BootedImage.Digest,
		},
	}
	for i, mac := range macs(m.id) {
		doc.NICs = append(doc.NICs, inventory.NIC{Name: fmt.Sprintf("sim%d", i), MAC: mac, Driver: "ingot-sim", LinkUp: true,
			SpeedMbps: 25000})
	}
	return doc.Normal(), nil
}

// seedHex is a value that belongs to the machine for ever.
func seedHex(id, what string) string {
	sum := sha256.Sum256([]byte("ingot simulated " + what + " " + id))
	return hex.EncodeToString(sum[:])
}

func fingerprint(id string) string { return seedHex(id, "hardware") }
func diskSerial(id string) string  { return "SIMDISK-" + seedHex(id, "disk")[:12] }

// macs are locally administered (IEEE 802, second-least significant bit of the first octet).
func macs(id string) []string {
	h := seedHex(id, "mac")
	out := make([]string, 2)
	for i := range out {
		s := h[i*10 : i*10+10]
		out[i] = fmt.Sprintf("02:%s:%s:%s:%s:%s", s[0:2], s[2:4], s[4:6], s[6:8], s[8:10])
	}
	return out
}
