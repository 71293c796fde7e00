package cmdline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/ingot-metal/ingot/agent/config"
	"github.com/ingot-metal/ingot/agent/site/tftp"
)

const (
	// faultBytes and warnBytes are how much room the cache of images should have.
	faultBytes = 1 << 30
	warnBytes  = 8 << 30
)

// checkSite checks what serving segments takes.
func checkSite(ctx context.Context, c config.Config) []finding {
	list := []finding{checkBootPrograms(c.Site.TFTPDir, tftp.Debian), checkSpace(c.Site.CacheDir, faultBytes, warnBytes)}
	serving := running(c.StateDir)
	for _, name := range c.Site.Interfaces {
		address, f := checkDevice(name)
		list = append(list, f)
		if address == "" || serving { // then the ports are the agent's own
			continue
		}
		for _, p := range []struct {
			network string
			port    int
		}{{"udp4", 67}, {"udp4", 69}, {"tcp4", c.Site.HTTPPort}} {
			list = append(list, checkPort(ctx, p.network, net.JoinHostPort(address, strconv.Itoa(p.port))))
		}
	}
	return list
}

func checkBootPrograms(dirs ...string) finding {
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
		return finding{fail, "ipxe", "there is no " + strings.Join(missing, ", "), "apt install ipxe"}
	}
	return finding{ok, "ipxe", "boot programs for BIOS and UEFI", ""}
}

// checkSpace looks at the file system of a directory, or of the nearest one above it that is there.
func checkSpace(dir string, least, enough uint64) finding {
	for dir != "/" {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return finding{fail, "space", err.Error(), ""}
	}
	free := fs.Bavail * uint64(fs.Bsize) //nolint:gosec // a block has a positive size
	f := finding{ok, "space", fmt.Sprintf("%d MiB free in %s", free>>20, dir), ""}
	if free < enough {
		f.level, f.next = warn, "df -h "+dir+"; make room, or set site.cache_dir"
	}
	if free < least {
		f.level = fail
	}
	return f
}

// checkDevice returns the first IPv4 address of a network device that is up.
func checkDevice(name string) (string, finding) {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return "", finding{fail, "segment", "there is no network device " + name, "ip link; then correct site.interfaces"}
	}
	if device.Flags&net.FlagUp == 0 {
		return "", finding{fail, "segment", name + " is down", "ip link set " + name + " up"}
	}
	list, err := device.Addrs()
	if err != nil {
		return "", finding{fail, "segment", err.Error(), ""}
	}
	for _, a := range list {
		if p, isNet := a.(*net.IPNet); isNet && p.IP.To4() != nil {
			return p.IP.String(), finding{ok, "segment", name + " is up and has " + p.String(), ""}
		}
	}
	return "", finding{fail, "segment", name + " has no IPv4 address", "ip address add ADDRESS/BITS dev " + name}
}

// checkPort opens a port for a moment.
func checkPort(ctx context.Context, network, address string) finding {
	what := network[:3] + " " + address
	var listen net.ListenConfig
	var err error
	if network == "udp4" {
		var conn net.PacketConn
		if conn, err = listen.ListenPacket(ctx, network, address); err == nil {
			err = conn.Close()
		}
	} else {
		var l net.Listener
		if l, err = listen.Listen(ctx, network, address); err == nil {
			err = l.Close()
		}
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		_, port, _ := net.SplitHostPort(address) // it has just been put together
		return finding{fail, "port", "another program has " + what,
			"ss -lnp 'sport = :" + port + "' names it; systemctl disable --now its service"}
	case errors.Is(err, os.ErrPermission):
		return finding{fail, "port", what + ": " + err.Error(), "run doctor as root"}
	case err != nil:
		return finding{fail, "port", what + ": " + err.Error(), ""}
	}
	return finding{ok, "port", what + " is free", ""}
}
