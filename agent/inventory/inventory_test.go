package inventory

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/inventory/lldp"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.FixedZone("x", 3600))

// tree builds /proc and /sys as a kernel shows them. A value of "-> x" makes a symbolic link to x.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func server() map[string]string {
	const bus = "sys/devices/pci0000:00/0000:00:01.0/"
	f := map[string]string{
		"proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: " +
			"EPYC 9654\nmicrocode\t: 0xa10113e\n\nprocessor\t: 1\nvendor_id\t: other\n",
		"proc/meminfo":                   "MemTotal:       1000 kB\nMemFree: 1 kB\n",
		"proc/sys/kernel/osrelease":      "6.12.1\n",
		"proc/sys/kernel/hostname":       "n1\n",
		"proc/sys/kernel/random/boot_id": "b-1\n",
		"etc/machine-id":                 "mid\n",
		"usr/lib/os-release": "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux " +
			"12\"\n#x=y\nVERSION_ID='12'\n",
		"sys/firmware/efi/fw_platform_size":                 "64\n",
		"sys/class/dmi/id/sys_vendor":                       "Dell Inc.\n",
		"sys/class/dmi/id/product_serial":                   "ABC123\n",
		"sys/class/dmi/id/product_uuid":                     "4c4c4544-0000\n",
		"sys/class/dmi/id/board_serial":                     "To be filled by O.E.M.\n",
		"sys/class/dmi/id/bios_version":                     "1.2.3\n",
		"sys/class/ipmi/ipmi0/device/bmc/firmware_revision": "7.10\n",
		"sys/class/tpm/tpm0/tpm_version_major":              "2\n",
		"sys/class/tpm/tpmrm0":                              "",

		bus + "0000:3b:00.0/class":              "0x020000\n",
		bus + "0000:3b:00.0/net/eth1/address":   "02:00:00:00:00:02\n",
		bus + "0000:3b:00.0/net/eth1/operstate": "up\n",
		bus + "0000:3b:00.0/net/eth1/speed":     "25000\n",
		bus + "0000:3b:00.0/net/eth1/device":    "-> ../..",
		bus + "0000:3b:00.0/driver":             "-> ../../../../bus/pci/drivers/mlx5_core",
		"sys/class/net/eth1":                    "-> ../../devices/pci0000:00/0000:00:01.0/0000:3b:00.0/net/eth1",
		bus + "usb1/net/idrac/address":          "02:00:00:00:00:01\n",
		bus + "usb1/net/idrac/speed":            "-1\n",
		bus + "usb1/net/idrac/device":           "-> ../..",
		"sys/class/net/idrac":                   "-> ../../devices/pci0000:00/0000:00:01.0/usb1/net/idrac",
		"sys/class/net/lo/address":              "00:00:00:00:00:00\n",
		"sys/class/net/bond0/address":           "02:00:00:00:00:02\n",

		"sys/bus/pci/devices/0000:3b:00.0/class":            "0x020000\n",
		"sys/bus/pci/devices/0000:3b:00.0/vendor":           "0x15b3\n",
		"sys/bus/pci/devices/0000:3b:00.0/device":           "0x101f\n",
		"sys/bus/pci/devices/0000:3b:00.0/subsystem_vendor": "0x15b3\n",
		"sys/bus/pci/devices/0000:3b:00.0/subsystem_device": "0x0001\n",
		"sys/bus/pci/devices/0000:17:00.0/class":            "0x030200\n",
		"sys/bus/pci/devices/0000:17:00.0/vendor":           "0x10de\n",
		"sys/bus/pci/devices/0000:18:00.0/class":            "0x120000\n",

		"sys/bus/pci/devices/0000:17:00.0/device":             "0x2330\n",
		"sys/bus/pci/devices/0000:17:00.0/driver":             "-> ../../../../bus/pci/drivers/nvidia",
		"sys/bus/pci/devices/0000:17:00.0/current_link_speed": "2.5 GT/s PCIe\n",
		"sys/bus/pci/devices/0000:17:00.0/current_link_width": "16\n",
		"sys/bus/pci/devices/0000:17:00.0/max_link_speed":     "32.0 GT/s PCIe\n",
		"sys/bus/pci/devices/0000:17:00.0/max_link_width":     "16\n",
		"sys/module/nvidia/version":                           "550.90.07\n",
		"proc/driver/nvidia/gpus/0000:17:00.0/information": "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 130\n" +
			"GPU UUID: \t GPU-4d2f\nVideo BIOS: \t 96.00.74.00.0d\nBus Location: \t 0000:17:00.0\n",
		"sys/bus/pci/devices/0000:65:00.0/class":               "0x120000\n",
		"sys/bus/pci/devices/0000:65:00.0/vendor":              "0x1002\n",
		"sys/bus/pci/devices/0000:65:00.0/device":              "0x74a1\n",
		"sys/bus/pci/devices/0000:65:00.0/product_name":        "AMD Instinct MI300X\n",
		"sys/bus/pci/devices/0000:65:00.0/unique_id":           "9a0d\n",
		"sys/bus/pci/devices/0000:65:00.0/vbios_version":       "113-M3000100-102\n",
		"sys/bus/pci/devices/0000:65:00.0/mem_info_vram_total": "206141652992\n",
		"sys/bus/pci/devices/0000:65:00.0/max_link_speed":      "Unknown\n",
		"sys/bus/pci/devices/0000:65:00.0/max_link_width":      "255\n",

		bus + "nvme/nvme0/model":                    "Samsung PM9A3 \n",
		bus + "nvme/nvme0/serial":                   "S64F \n",
		bus + "nvme/nvme0/firmware_rev":             "GDC5\n",
		bus + "nvme/nvme0/nvme0n1/size":             "2000\n",
		bus + "nvme/nvme0/nvme0n1/wwid":             "eui.0025\n",
		bus + "nvme/nvme0/nvme0n1/queue/rotational": "0\n",
		bus + "nvme/nvme0/nvme0n1/device":           "-> ..",
		"sys/block/nvme0n1":                         "-> ../devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1",
		bus + "ata1/host0/sda/size":                 "4000\n",
		bus + "ata1/host0/sda/queue/rotational":     "1\n",
		bus + "ata1/host0/sda/removable":            "0\n",
		bus + "ata1/host0/sda/device/model":         "HGST\n",
		bus + "ata1/host0/sda/device/wwid":          "naa.5000\n",
		bus + "ata1/host0/sda/device/rev":           "GXBD\n",
		bus + "ata1/host0/sda/device/vpd_pg89":      ataPage("HGST HUS728T8TALE6L4", "V8GNW9U0"),
		bus + "ata1/host0/sda/device/vpd_pg80":      "\x00\x80\x00\x08  K5GX  ",
		"sys/block/sda":                             "-> ../devices/pci0000:00/0000:00:01.0/ata1/host0/sda",
		"sys/block/sdz/device/model":                "empty card reader\n",
		"sys/block/sdz/size":                        "0\n",
		"sys/block/sr0/device/model":                "DVD\n",
		"sys/block/sr0/size":                        "100\n",
		"sys/block/loop0/size":                      "100\n",
		"sys/block/dm-0/size":                       "100\n",
		"sys/firmware/dmi/tables/DMI":               string(smbiosTables()),
	}
	for cpu, topology := range [][2]string{{"0", "0,2"}, {"0", "1,3"}, {"0", "0,2"}, {"1", "1,3"}} {
		dir := "sys/devices/system/cpu/cpu" + string(rune('0'+cpu)) + "/topology/"
		f[dir+"physical_package_id"] = topology[0] + "\n"
		f[dir+"core_cpus_list"] = topology[1] + "\n"
	}
	f["sys/devices/system/cpu/cpufreq/x"] = ""
	return f
}

// memoryDevice is an SMBIOS structure of type 17, as long as version 2.8 makes it.
func memoryDevice(handle byte, size uint16, extended uint32, text ...string) []byte {
	b := make([]byte, 0x28)
	b[0], b[1], b[2] = 17, 0x28, handle
	binary.LittleEndian.PutUint16(b[0x0c:], size)
	b[0x10], b[0x11] = 1, 2 // locator, bank
	b[0x12] = 0x22          // DDR5
	binary.LittleEndian.PutUint16(b[0x15:], 4800)
	b[0x17], b[0x18], b[0x1a] = 3, 4, 5 // manufacturer, serial, part number
	binary.LittleEndian.PutUint32(b[0x1c:], extended)
	for _, s := range text {
		b = append(append(b, s...), 0)
	}
	return append(b, 0)
}

// ataPage is the vital product data page ATA Information: a header, and the data of IDENTIFY DEVICE, in whose words the
// first character is the upper byte.
func ataPage(model, firmware string) string {
	page := make([]byte, 60+512)
	page[1] = 0x89
	for at, text := range map[int]string{60 + 54: model + strings.Repeat(" ", 40-len(model)), 60 + 46: firmware} {
		for i := 0; i < len(text); i += 2 {
			page[at+i], page[at+i+1] = text[i+1], text[i]
		}
	}
	return string(page)
}

func smbiosTables() []byte {
	return slices.Concat(
		memoryDevice(1, 0x7fff, 131072, "A1", "P0", "Hynix", "SN1", "PN1"), // 128 GiB
		memoryDevice(2, 16384, 0, "A2", "P0", "Hynix", "SN2", "PN2"),
		memoryDevice(3, 0, 0, "A3", "P0", "NO DIMM", "x", "y"),
		memoryDevice(4, 0x8000|512, 0, "A4", "P0", "Old", "None", "PN4"),        // 512 KiB
		[]byte{45, 0x08, 5, 0, 1, 2, 0, 0}, []byte("Backplane\x004.35\x00\x00"), // firmware inventory (7.46)
		[]byte{127, 4, 9, 0, 0, 0},
	)
}

func TestCollectAServer(t *testing.T) {
	t.Parallel()
	d := Collect(Config{Root: tree(t, server()), Now: func() time.Time { return now }})
	if got := d.System; got.Vendor != "Dell Inc." || got.Serial != "ABC123" || got.BoardSerial != "" {
		t.Errorf("system %+v", got)
	}
	if got := d.CPU; got.Sockets != 2 || got.Cores != 2 || got.Threads != 4 || got.Vendor != "AuthenticAMD" ||
		got.Model != "EPYC 9654" {
		t.Errorf("cpu %+v", got)
	}
	if got := d.Memory; got.UsableBytes != 1000<<10 || got.TotalBytes != 128<<30+16<<30+512<<10 ||
		len(got.DIMMs) != 3 || got.Slots != 4 {
		t.Errorf("memory %+v", got)
	}
	want := DIMM{Locator: "A1", Bank: "P0", SizeBytes: 128 << 30, SpeedMTs: 4800, Type: "DDR5", Manufacturer: "Hynix",
		PartNumber: "PN1", Serial: "SN1"}
	if got := d.Memory.DIMMs[0]; got != want {
		t.Errorf("dimm %+v, want %+v", got, want)
	}
	if want := (OS{Name: "Debian GNU/Linux 12", ID: "debian", Version: "12", Kernel: "6.12.1", Hostname: "n1",
		MachineID: "mid", BootID: "b-1", FirmwareIs: "uefi"}); d.OS != want {
		t.Errorf("os %+v, want %+v", d.OS, want)
	}
	if d.BMC == nil || !d.BMC.Present || d.BMC.Version != "7.10" || d.TPM == nil || d.TPM.Version != "2.0" {
		t.Errorf("bmc %+v, tpm %+v", d.BMC, d.TPM)
	}
	if want := []Firmware{
		{"Backplane", "4.35"},
		{"bios", "1.2.3"},
		{"cpu-microcode", "0xa10113e"},
	}; !slices.Equal(
		d.Firmware,
		want,
	) {
		t.Errorf("firmware %+v", d.Firmware)
	}
	if want := []string{
		"bmc address: not asked over IPMI",
		"neighbours: not listened for yet",
	}; !slices.Equal(
		d.Missing,
		want,
	) {
		t.Errorf("missing %q", d.Missing)
	}
}

func TestCollectDevices(t *testing.T) {
	t.Parallel()
	root := tree(t, server())
	d := Collect(Config{Root: root})
	disks := []Disk{
		{
			Name:       "sda",
			Model:      "HGST HUS728T8TALE6L4",
			Firmware:   "V8GNW9U0",
			Serial:     "K5GX",
			WWN:        "naa.5000",
			SizeBytes:  4000 * 512,
			Rotational: true,
			Transport:  "ata",
		},
		{Name: "nvme0n1", Model: "Samsung PM9A3", Serial: "S64F", WWN: "eui.0025", SizeBytes: 2000 * 512, Transport: "nvme",
			Firmware: "GDC5"},
	}
	if !slices.Equal(d.Disks, disks) {
		t.Errorf("disks %+v\nwant %+v", d.Disks, disks)
	}
	nics := []NIC{
		{Name: "idrac", MAC: "02:00:00:00:00:01", PCI: "0000:00:01.0"},
		{Name: "eth1", MAC: "02:00:00:00:00:02", Driver: "mlx5_core", PCI: "0000:3b:00.0", LinkUp: true, SpeedMbps: 25000},
	}
	if !reflect.DeepEqual(d.NICs, nics) {
		t.Errorf("nics %+v\nwant %+v", d.NICs, nics)
	}
	pci := []PCI{
		{Address: "0000:17:00.0", Class: "030200", Vendor: "10de", Device: "2330", Driver: "nvidia", GPU: true},
		{Address: "0000:18:00.0", Class: "120000"}, // not of a maker of accelerators
		{Address: "0000:3b:00.0", Class: "020000", Vendor: "15b3", Device: "101f", Subsystem: "15b3:0001"},
		{Address: "0000:65:00.0", Class: "120000", Vendor: "1002", Device: "74a1", GPU: true},
	}
	if !slices.Equal(d.PCI, pci) {
		t.Errorf("pci %+v\nwant %+v", d.PCI, pci)
	}
	accelerators := []Accelerator{
		{Address: "0000:17:00.0", Vendor: "10de", Device: "2330", Model: "NVIDIA H100 80GB HBM3", Serial: "GPU-4d2f",
			Driver: "nvidia", DriverVersion: "550.90.07", Firmware: "96.00.74.00.0d", Link: "2.5 GT/s x16",
			LinkBest: "32.0 GT/s x16"},
		{Address: "0000:65:00.0", Vendor: "1002", Device: "74a1", Model: "AMD Instinct MI300X", Serial: "9a0d",
			Firmware: "113-M3000100-102", MemoryBytes: 206141652992},
	}
	if !slices.Equal(d.Accelerators, accelerators) {
		t.Errorf("accelerators %+v\nwant %+v", d.Accelerators, accelerators)
	}
	if macs := PermanentMACs(root); !slices.Equal(macs, []string{"02:00:00:00:00:02"}) {
		t.Errorf("permanent MACs %q: USB interfaces come and go", macs)
	}
}

func TestCollectWithNothingThere(t *testing.T) {
	t.Parallel()
	d := Collect(Config{Root: t.TempDir()})
	for _, part := range []string{"system", "cpu topology", "memory", "dimms", "disks", "nics", "pci", "firmware", "bmc",
		"tpm", "os", "kernel", "machine-id", "boot id"} {
		if !slices.ContainsFunc(d.Missing, func(m string) bool { return strings.HasPrefix(m, part+": ") }) {
			t.Errorf("%s is not named among the missing %q", part, d.Missing)
		}
	}
	if b, err := d.JSON(); err != nil || bytes.Contains(b, []byte("null")) {
		t.Errorf("JSON %s, %v", b, err)
	}
}

func TestBrokenTablesAreMissingNotFatal(t *testing.T) {
	t.Parallel()
	for name, table := range map[string]string{
		"empty": "", "cut": string(smbiosTables()[:20]), "noise": strings.Repeat("\xff", 64),
		"short structure": "\x11\x05\x01\x00\x01\x00\x00\x7f\x04\x00\x00\x00\x00",
	} {
		root := tree(t, map[string]string{"sys/firmware/dmi/tables/DMI": table, "proc/meminfo": "MemTotal: 5 kB"})
		d := Collect(Config{Root: root})
		if d.Memory.TotalBytes != 5<<10 || len(d.Memory.DIMMs) != 0 {
			t.Errorf("%s: memory %+v", name, d.Memory)
		}
	}
}

func TestMemoryWithoutTablesIsThatOfTheBlocks(t *testing.T) {
	t.Parallel()
	d := Collect(Config{Root: tree(t, map[string]string{
		"sys/devices/system/memory/block_size_bytes": "8000000\n", // hex: 128 MiB
		"sys/devices/system/memory/memory0/state":    "online",
		"sys/devices/system/memory/memory9/state":    "online",
		"proc/meminfo": "MemTotal: 5 kB",
	})})
	if d.Memory.TotalBytes != 256<<20 {
		t.Errorf("memory %+v", d.Memory)
	}
}

func TestCollectHere(t *testing.T) {
	t.Parallel()
	d := Collect(Config{})
	if d.OS.BootID == "" || d.OS.Kernel == "" || d.CPU.Threads == 0 || d.Memory.UsableBytes == 0 {
		t.Errorf("this machine shows %+v", d)
	}
	again := Collect(Config{})
	if d.Hash() != again.Hash() {
		t.Errorf("two collections in a row differ:\n%+v\n%+v", d, again)
	}
}

// plugged is what a round of listening found.
func plugged() *lldp.Heard {
	return &lldp.Heard{Neighbours: map[string][]lldp.Neighbour{"eth1": {{Chassis: "02:aa:00:00:00:01", Port: "Ethernet7",
		System: "leaf1", Description: "EOS 4.30"}}}, Faults: map[string]string{"idrac": "the interface is down"}}
}

func TestNeighboursAreOfTheirInterface(t *testing.T) {
	t.Parallel()
	d := Collect(Config{Root: tree(t, server()), Heard: plugged()})
	if d.NICs[1].Name != "eth1" || len(d.NICs[1].Neighbours) != 1 || d.NICs[1].Neighbours[0].Port != "Ethernet7" ||
		d.NICs[0].Neighbours != nil {
		t.Errorf("nics %+v", d.NICs)
	}
	if !slices.Contains(d.Missing, "neighbours of idrac: the interface is down") {
		t.Errorf("missing %q", d.Missing)
	}
	if names := Interfaces(tree(t, server())); !slices.Equal(names, []string{"eth1", "idrac"}) {
		t.Errorf("interfaces %q", names)
	}
}

// What firmware and disks say may be anything. The rest of the inventory stays, and a database can keep it.
func TestAHostileMachineIsBounded(t *testing.T) {
	t.Parallel()
	f := server()
	f["sys/class/dmi/id/product_serial"] = "AB\x00C\x1b[2J\xff" + strings.Repeat("x", 1000)
	var table []byte
	for i := range 4000 {
		table = append(table, memoryDevice(byte(i), 16384, 0, strings.Repeat("L", 300), "P\x01", "\xff\xfe", "s", "p")...)
	}
	f["sys/firmware/dmi/tables/DMI"] = string(append(table, 17, 200))
	d := Collect(Config{Root: tree(t, f), Heard: plugged()})
	body, err := d.JSON()
	if err != nil || len(body) > MostBytes+4096 || bytes.Contains(body, []byte(`\u0000`)) {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	if !strings.HasPrefix(d.System.Serial, "ABC[2J?xxx") || len(d.System.Serial) > mostText {
		t.Errorf("serial %q", d.System.Serial)
	}
	if len(d.Disks) != 2 || len(d.NICs) != 2 || d.CPU.Threads != 4 || d.TPM == nil {
		t.Errorf("the rest was lost: %+v", d)
	}
	said := strings.Join(d.Missing, "\n")
	if !strings.Contains(said, "dimms: the SMBIOS table is damaged") ||
		!strings.Contains(said, " left out, there are too many") {
		t.Errorf("missing %q", d.Missing)
	}
}

// Where all of it is too large, the part goes that takes the most room.
func TestTheLargestPartGoesFirst(t *testing.T) {
	t.Parallel()
	d := Collect(Config{Root: tree(t, server()), Heard: plugged()})
	for i := range 1500 {
		long := strings.Repeat("x", mostText-4) + strconv.Itoa(i)
		d.Firmware = append(d.Firmware, Firmware{Component: long, Version: long})
		d.NICs[1].Neighbours = append(d.NICs[1].Neighbours, lldp.Neighbour{Chassis: long, Port: long, System: long})
	}
	b := d.bounded()
	if body, err := b.JSON(); err != nil || len(body) > MostBytes || b.NICs[1].Neighbours != nil || len(b.NICs) != 2 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	if want := "neighbours: left out, the inventory was too large"; len(b.Firmware) != 1502+1 ||
		!slices.Contains(b.Missing, want) {
		t.Errorf("%d pieces of firmware, missing %q", len(b.Firmware), b.Missing)
	}
	if len(d.NICs[1].Neighbours) != 1501 {
		t.Error("the document itself was changed")
	}
}

// BenchmarkFullInventory is a server with 32 modules, 26 disks, 12 interfaces, 8 accelerators and 300 PCI functions.
func BenchmarkFullInventory(b *testing.B) {
	doc := Document{CollectedAt: now}
	text := func(n, i int) string { return (strings.Repeat("x", n) + strconv.Itoa(i))[:n] }
	for i := range 32 {
		doc.Memory.DIMMs = append(doc.Memory.DIMMs, DIMM{Locator: text(8, i), Bank: text(12, i), SizeBytes: 64 << 30,
			SpeedMTs: 4800, Type: "DDR5", Manufacturer: text(12, i), PartNumber: text(18, i), Serial: text(10, i)})
	}
	for i := range 26 {
		doc.Disks = append(doc.Disks, Disk{Name: text(8, i), Model: text(24, i), Serial: text(20, i), WWN: text(36, i),
			SizeBytes: 7 << 40, Transport: "nvme", Firmware: text(8, i)})
	}
	for i := range 12 {
		doc.NICs = append(doc.NICs, NIC{Name: text(8, i), MAC: text(17, i), Driver: "mlx5_core", PCI: "0000:3b:00.0",
			LinkUp: true, SpeedMbps: 100000, Firmware: text(24, i), Neighbours: []lldp.Neighbour{{Chassis: text(17, i),
				Port: text(14, i), PortDescription: text(30, i), System: text(24, i), Description: text(200, i),
				Addresses: []string{"192.0.2.1", "2001:db8::1"}, VLAN: 100}}})
	}
	for i := range 8 {
		doc.Accelerators = append(doc.Accelerators, Accelerator{Address: text(12, i), Vendor: "10de", Device: "2330",
			Model: text(24, i), Serial: text(40, i), Driver: "nvidia", DriverVersion: "550.90.07", Firmware: text(14, i),
			Link: "32.0 GT/s x16", LinkBest: "32.0 GT/s x16"})
	}
	for i := range 300 {
		doc.PCI = append(doc.PCI, PCI{Address: text(12, i), Class: "020000", Vendor: "15b3", Device: "101f",
			Subsystem: "15b3:0001", Driver: "mlx5_core"})
	}
	size := 0
	for b.Loop() {
		_ = doc.bounded().Hash()
		body, err := doc.JSON()
		if err != nil {
			b.Fatal(err)
		}
		size = len(body)
	}
	b.ReportMetric(float64(size), "bytes")
}

func TestHash(t *testing.T) {
	t.Parallel()
	root := tree(t, server())
	fresh := func() Document {
		return Collect(Config{Root: root, Now: func() time.Time { return now }, Heard: plugged()})
	}
	base := fresh().Hash()
	for name, change := range map[string]func(*Document){
		"time":          func(d *Document) { d.CollectedAt = now.Add(time.Hour) },
		"boot id":       func(d *Document) { d.OS.BootID = "b-2" },
		"link":          func(d *Document) { d.NICs[1].LinkUp, d.NICs[1].SpeedMbps = false, 0 },
		"order":         func(d *Document) { slices.Reverse(d.Disks); slices.Reverse(d.PCI); slices.Reverse(d.NICs) },
		"kernel names":  func(d *Document) { d.Disks[0].Name, d.NICs[0].Name = "sdb", "eth9" },
		"usable memory": func(d *Document) { d.Memory.UsableBytes-- },
		"missing":       func(d *Document) { d.Missing = nil },
		"what the switch runs": func(d *Document) {
			d.NICs[1].Neighbours[0].Description, d.NICs[1].Neighbours[0].Addresses = "EOS 5", []string{"192.0.2.9"}
		},
		"an idle link": func(d *Document) { d.Accelerators[0].Link = "5.0 GT/s x16" },
		"empty as nil": func(d *Document) { d.Memory.DIMMs = append([]DIMM(nil), d.Memory.DIMMs...) },
	} {
		d := fresh()
		change(&d)
		if d.Hash() != base {
			t.Errorf("depends on %s", name)
		}
	}
	for name, change := range map[string]func(*Document){
		"disk swapped": func(d *Document) { d.Disks[0].Serial = "new" },
		"disk gone":    func(d *Document) { d.Disks = d.Disks[1:] },
		"nic swapped":  func(d *Document) { d.NICs[0].MAC = "02:00:00:00:00:99" },
		"another port": func(d *Document) { d.NICs[1].Neighbours[0].Port = "Ethernet8" },
		"unplugged":    func(d *Document) { d.NICs[1].Neighbours = nil },
		"not listened": func(d *Document) { d.Missing = append(d.Missing, "neighbours: not listened for yet") },
		"accelerator":  func(d *Document) { d.Accelerators = d.Accelerators[1:] },
		"dimm gone":    func(d *Document) { d.Memory.DIMMs = d.Memory.DIMMs[1:] },
		"firmware":     func(d *Document) { d.Firmware[0].Version = "2" },
		"kernel":       func(d *Document) { d.OS.Kernel = "7" },
		"tpm gone":     func(d *Document) { d.TPM = nil },
		"machine-id":   func(d *Document) { d.OS.MachineID = "other" },
		"simulated":    func(d *Document) { d.Simulated = true },
	} {
		d := fresh()
		change(&d)
		if d.Hash() == base {
			t.Errorf("does not depend on %s", name)
		}
	}
	d := fresh()
	kept := d.Disks[0].Name
	_ = d.Hash()
	if d.Disks[0].Name != kept {
		t.Error("hashing changed the document")
	}
}

func TestJSONIsStable(t *testing.T) {
	t.Parallel()
	d := Collect(Config{Root: tree(t, server()), Now: func() time.Time { return now }})
	first, err := d.JSON()
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(d.Disks)
	d.CollectedAt = d.CollectedAt.UTC()
	second, err := d.JSON()
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("%v\n%s\n%s", err, first, second)
	}
}
