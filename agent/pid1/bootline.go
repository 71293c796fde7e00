package pid1

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/ingot-metal/ingot/internal/hwid"
	"github.com/ingot-metal/ingot/internal/mediaproof"
)

// Kernel parameters that this package reads. Every user of the machine, and every reader of its boot script on the
// network, can read them: none is a secret.
const (
	// ParamRole chooses what the machine is for: RoleInstaller, or a host when it is absent.
	ParamRole = "ingot.role"
	// ParamSite is the base URL of the site's boot server, such as http://192.0.2.1:8080.
	ParamSite = "ingot.site"
	// ParamToken is the boot token: the part of the boot URLs that names one operation.
	ParamToken = "ingot.token"
	// ParamMAC picks the network interface to use. BOOTIF, which PXE loaders append, does the same.
	ParamMAC = "ingot.mac"
	// ParamNet is how a machine without a NetworkFile gets its address: NetDHCP, or DefaultNetwork when absent.
	ParamNet = "ingot.net"

	// RoleInstaller is the role of a machine that is booted to be installed.
	RoleInstaller = "installer"
	// NetDHCP asks for an address by DHCP.
	NetDHCP = "dhcp"

	paramBootIf = "BOOTIF"
)

// ErrBootLine is returned when the kernel's command line lacks a parameter or has a wrong one.
var ErrBootLine = errors.New("wrong kernel command line")

// bootLine has this program's parameters on the kernel's command line.
type bootLine struct {
	role, site, token, net string
	// mac is in the form of net.HardwareAddr.String, or "".
	mac string
	// media is what stands in the image that the machine was started from; nil where it was not.
	media *mediaproof.File
}

func readBootLine(path string) (bootLine, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return bootLine{}, fmt.Errorf("read kernel command line: %w", err)
	}
	return parseBootLine(string(text))
}

// parseBootLine takes the last of several values, as the kernel does, and knows no quotes: none of the values has
// spaces. Parameters that it doesn't know belong to others.
func parseBootLine(text string) (bootLine, error) {
	values := map[string]string{}
	for _, field := range strings.Fields(text) {
		if key, value, ok := strings.Cut(field, "="); ok {
			values[key] = value
		}
	}
	b := bootLine{
		role: values[ParamRole], site: strings.TrimRight(values[ParamSite], "/"), token: values[ParamToken],
		net: values[ParamNet],
	}
	mac, macErr := parseMAC(values[ParamMAC], values[paramBootIf])
	b.mac = mac
	return b, errors.Join(macErr, b.check())
}

// check joins all that is wrong.
func (b bootLine) check() error {
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("%w: %s", ErrBootLine, fmt.Sprintf(format, args...)))
		}
	}
	bad(b.role != "" && b.role != RoleInstaller, "%s=%q is not %s", ParamRole, b.role, RoleInstaller)
	bad(b.net != "" && b.net != NetDHCP, "%s=%q is not %s", ParamNet, b.net, NetDHCP)
	if b.role == RoleInstaller {
		u, err := url.Parse(b.site)
		bad(err != nil || u.Scheme != "http" || u.Host == "" || u.Path != "", "%s=%q is not http://HOST:PORT", ParamSite,
			b.site)
		bad(b.token == "", "no %s", ParamToken)
	}
	return errors.Join(errs...)
}

// parseMAC prefers the outright MAC. The other is "01-" and the MAC with dashes, where 01 is the hardware type of
// Ethernet (https://wiki.syslinux.org/wiki/index.php?title=SYSLINUX, IPAPPEND 2).
func parseMAC(mac, bootIf string) (string, error) {
	if mac == "" {
		mac = strings.TrimPrefix(bootIf, "01-")
	}
	if mac == "" {
		return "", nil
	}
	read, err := hwid.MAC(mac)
	if err != nil {
		return "", fmt.Errorf("%w: %q is no Ethernet address", ErrBootLine, mac)
	}
	return read, nil
}
