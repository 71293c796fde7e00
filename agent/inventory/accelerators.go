package inventory

import (
	"cmp"
	"strconv"
	"strings"
)

// accelerators describes those of the functions that are some.
func (c collector) accelerators(functions []PCI) []Accelerator {
	var out []Accelerator
	for _, p := range functions {
		if !p.GPU {
			continue
		}
		dir := "sys/bus/pci/devices/" + p.Address + "/"
		nvidia := c.nvidia(p.Address)
		out = append(out, Accelerator{
			Address: p.Address, Vendor: p.Vendor, Device: p.Device, Driver: p.Driver,
			DriverVersion: c.driverVersion(p.Driver),
			// The files of amdgpu (kernel, Documentation/gpu/amdgpu/driver-misc.rst), else the values of NVIDIA's driver.
			Model:       cmp.Or(c.text(dir+"product_name"), nvidia["Model"]),
			Serial:      cmp.Or(c.first(dir+"serial_number", dir+"unique_id"), nvidia["GPU UUID"]),
			Firmware:    cmp.Or(c.text(dir+"vbios_version"), nvidia["Video BIOS"]),
			MemoryBytes: uint64(max(c.number(dir+"mem_info_vram_total"), 0)),
			Link:        c.pcieLink(dir + "current_link_"), LinkBest: c.pcieLink(dir + "max_link_"),
		})
	}
	return out
}

// mostPage bounds the text that is read from a driver about one device, in bytes.
const mostPage = 4096

// driverVersion is that of a module from outside the kernel; those of the kernel have its own.
func (c collector) driverVersion(driver string) string {
	if driver == "" {
		return ""
	}
	return c.text("sys/module/" + strings.ReplaceAll(driver, "-", "_") + "/version")
}

// nvidia reads NVIDIA's driver's values of a device: names, a colon, and values (its README, appendix "The /proc
// interface").
func (c collector) nvidia(address string) map[string]string {
	out := map[string]string{}
	text, err := c.limited("proc/driver/nvidia/gpus/"+address+"/information", mostPage)
	if err != nil {
		return out
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			out[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return out
}

// pcieLink reads the speed and the width of a link; the kernel has 0 or 255 for the width of none.
func (c collector) pcieLink(prefix string) string {
	speed, _, _ := strings.Cut(c.text(prefix+"speed"), " PCIe") // older kernels leave the word out
	width, err := strconv.Atoi(c.text(prefix + "width"))
	if err != nil || width <= 0 || width > 32 || speed == "" || strings.HasPrefix(speed, "Unknown") {
		return ""
	}
	return speed + " x" + strconv.Itoa(width)
}
