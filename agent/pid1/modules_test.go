package pid1

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const driverList = `/lib/modules/ptp.ko /lib/modules/e1000e.ko
	pci:v00008086d000010D3sv*sd*bc*sc*i*
	pci:v00008086d0000105Esv*sd*bc*sc*i*
/lib/modules/ipmi_si.ko
	acpi*:IPI0001:*
	platform:dmi-ipmi-si
	broken:[
/lib/modules/ahci.ko
	pci:v*d*sv*sd*bc01sc06i01*
`

func TestDriversAreChosenByDevice(t *testing.T) {
	t.Parallel()
	drivers := parseDrivers(driverList)
	if len(drivers) != 3 || len(drivers[1].aliases) != 3 {
		t.Fatalf("parsed %+v", drivers)
	}
	for device, want := range map[string]string{
		"pci:v00008086d000010D3sv00008086sd00000000bc02sc00i00": "/lib/modules/e1000e.ko",
		"pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01": "/lib/modules/ahci.ko",
		"acpi:IPI0001:":           "/lib/modules/ipmi_si.ko",
		"platform:dmi-ipmi-si":    "/lib/modules/ipmi_si.ko",
		"platform:dmi-ipmi-si2":   "",
		"broken:[":                "",
		"virtio:d00000001v00001A": "",
	} {
		found, rest := match(drivers, []string{"cpu:type:x86", device})
		switch {
		case want == "" && len(found) == 0 && len(rest) == 3:
		case want != "" && len(found) == 1 && len(rest) == 2 && slices.Contains(found[0].paths, want):
		default:
			t.Errorf("%s finds %+v, want %q", device, found, want)
		}
	}
	if found, _ := match(drivers, nil); found != nil {
		t.Errorf("no devices, but %+v", found)
	}
}

func TestDeviceAliasesAreThoseOfAllBuses(t *testing.T) {
	t.Parallel()
	sys := t.TempDir()
	for path, text := range map[string]string{
		"bus/pci/devices/0000:00:02.0/modalias": "pci:a\n",
		"bus/acpi/devices/IPI0001:00/modalias":  "acpi:IPI0001:\n",
		"bus/pci/devices/0000:00:02.0/vendor":   "0x8086\n",
	} {
		path = filepath.Join(sys, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := deviceAliases(sys); !slices.Equal(got, []string{"acpi:IPI0001:", "pci:a"}) {
		t.Errorf("%q", got)
	}
}
