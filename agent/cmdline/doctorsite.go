package cmdline

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ingot-metal/ingot/agent/config"
	"github.com/ingot-metal/ingot/agent/site/media"
	"github.com/ingot-metal/ingot/agent/site/tftp"
	"github.com/ingot-metal/ingot/internal/doctor"
)

const (
	// faultBytes and warnBytes are how much room the cache of images should have.
	faultBytes = 1 << 30
	warnBytes  = 8 << 30
)

// checkSite checks what serving segments takes.
func checkSite(ctx context.Context, c config.Config) []doctor.Finding {
	list := []doctor.Finding{checkBootPrograms(c.Site.TFTPDir, tftp.Debian), checkMediaLoader(media.LoaderFiles...),
		doctor.Space(c.Site.CacheDir, faultBytes, warnBytes,
			"df -h "+c.Site.CacheDir+"; make room, or set site.cache_dir")}
	serving, doc := running(c.StateDir), siteDocument(ctx, c)
	proxy := proxied(doc)
	for _, name := range c.Site.Interfaces {
		address, f := checkDevice(name)
		list = append(list, f)
		if address != "" {
			list = append(list, checkOtherDHCP(ctx, name, proxy[name]))
		}
		if address == "" || serving { // then the ports are the agent's own
			continue
		}
		for _, p := range []struct {
			network string
			port    int
		}{{"udp4", 67}, {"udp4", 69}, {"tcp4", c.Site.HTTPPort}} {
			list = append(list, doctor.Port(ctx, p.network, net.JoinHostPort(address, strconv.Itoa(p.port))))
		}
	}
	return append(list, checkBMCs(ctx, doc.GetBmcs())...)
}

func checkBootPrograms(dirs ...string) doctor.Finding {
	var missing []string
	for _, name := range []string{"undionly.kpxe", "snponly.efi"} {
		found := false
		for _, dir := range dirs {
			if dir == "" {
				continue
			}
			_, err := os.Stat(filepath.Join(dir, name))
			found = found || err == nil
		}
		if !found {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return doctor.Fault("ipxe", "there is no "+strings.Join(missing, ", "), "apt install ipxe")
	}
	return doctor.Well("ipxe", "boot programs for BIOS and UEFI")
}

// checkMediaLoader looks for what BIOS machines start from in the images that their BMCs attach.
func checkMediaLoader(paths ...string) doctor.Finding {
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return doctor.Fault("isolinux", "there is no "+filepath.Base(path)+": BIOS machines cannot start from virtual media",
				"apt install isolinux syslinux-common")
		}
	}
	return doctor.Well("isolinux", "boot loader for virtual media under BIOS")
}

// checkDevice returns the first IPv4 address of a network device that is up.
func checkDevice(name string) (string, doctor.Finding) {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return "", doctor.Fault("segment", "there is no network device "+name, "ip link; then correct site.interfaces")
	}
	if device.Flags&net.FlagUp == 0 {
		return "", doctor.Fault("segment", name+" is down", "ip link set "+name+" up")
	}
	list, err := device.Addrs()
	if err != nil {
		return "", doctor.Fault("segment", err.Error(), "")
	}
	for _, a := range list {
		if p, isNet := a.(*net.IPNet); isNet && p.IP.To4() != nil {
			return p.IP.String(), doctor.Well("segment", name+" is up and has "+p.String())
		}
	}
	return "", doctor.Fault("segment", name+" has no IPv4 address", "ip address add ADDRESS/BITS dev "+name)
}
