package inventory

import (
	"github.com/ingot-metal/ingot/agent/inventory/dmi"
	"github.com/ingot-metal/ingot/internal/hwid"
)

func (c collector) firmware(tables []dmi.Structure) []Firmware {
	var list []Firmware
	for _, f := range []struct{ component, file string }{
		{"bios", "sys/class/dmi/id/bios_version"},
		{"bios-date", "sys/class/dmi/id/bios_date"},
		{"bios-vendor", "sys/class/dmi/id/bios_vendor"},
		{"embedded-controller", "sys/class/dmi/id/ec_firmware_release"},
	} {
		if v := hwid.Text(c.text(f.file)); v != "" {
			list = append(list, Firmware{Component: f.component, Version: v})
		}
	}
	if v := c.cpuinfo()["microcode"]; v != "" {
		list = append(list, Firmware{Component: "cpu-microcode", Version: v})
	}
	for _, s := range tables {
		if s.Type != dmi.TypeFirmware {
			continue
		}
		if f := s.Component(); hwid.Text(f.Name) != "" && hwid.Text(f.Version) != "" {
			list = append(list, Firmware{Component: f.Name, Version: f.Version})
		}
	}
	if len(list) == 0 {
		c.miss("firmware", "nothing to read")
	}
	return list
}

// bmc finds the IPMI driver's device. Its address would take an IPMI request, which is the site agent's work.
func (c collector) bmc() *BMC {
	if !c.exists("sys/class/ipmi") {
		c.miss("bmc", "no IPMI driver is loaded")
		return nil
	}
	b := &BMC{}
	for _, name := range c.names("sys/class/ipmi") {
		b.Present = true
		if v := c.text("sys/class/ipmi/" + name + "/device/bmc/firmware_revision"); v != "" {
			b.Version = v
		}
	}
	if b.Present {
		c.miss("bmc address", "not asked over IPMI")
	}
	return b
}

func (c collector) tpm() *TPM {
	if !c.exists("sys/class/tpm") {
		c.miss("tpm", "the kernel has no TPM support")
		return nil
	}
	t := &TPM{}
	for _, name := range c.names("sys/class/tpm") {
		if !numbered(name, "tpm") {
			continue
		}
		t.Present = true
		switch c.text("sys/class/tpm/" + name + "/tpm_version_major") {
		case "1":
			t.Version = "1.2"
		case "2":
			t.Version = "2.0"
		}
	}
	return t
}
