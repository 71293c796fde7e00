package bootdisk

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed debian
var debianFiles embed.FS

// place is where a file of the directory debian goes.
type place struct {
	from, to string
	mode     os.FileMode
}

var places = []place{
	{"fstab", "etc/fstab", 0o644},
	{"root.conf", "etc/repart.d/50-root.conf", 0o644},
	{"wired.network", "etc/systemd/network/80-ingot-wired.network", 0o644},
	{"agent.conf", "etc/systemd/system/ingot-agent.service.d/image.conf", 0o644},
	{"hostname.service", "etc/systemd/system/ingot-hostname.service", 0o644},
	{"start-agent", "usr/lib/ingot/start-agent", 0o755},
	{"boot-update", "etc/kernel/postinst.d/zz-ingot", 0o755},
	{"boot-update", "etc/initramfs/post-update.d/zz-ingot", 0o755},
}

// units are enabled by links, as systemctl enable would make them.
var units = map[string]string{
	"etc/systemd/system/multi-user.target.wants/ingot-agent.service":                      "/lib/systemd/system/ingot-agent.service",
	"etc/systemd/system/multi-user.target.wants/ingot-hostname.service":                   "/etc/systemd/system/ingot-hostname.service",
	"etc/systemd/system/multi-user.target.wants/systemd-networkd.service":                 "/lib/systemd/system/systemd-networkd.service",
	"etc/systemd/system/sockets.target.wants/systemd-networkd.socket":                     "/lib/systemd/system/systemd-networkd.socket",
	"etc/systemd/system/network-online.target.wants/systemd-networkd-wait-online.service": "/lib/systemd/system/systemd-networkd-wait-online.service",
	"etc/systemd/system/dbus-org.freedesktop.network1.service":                            "/lib/systemd/system/systemd-networkd.service",
}

// configureTree writes into the tree of a Debian system.
func configureTree(tree, espID, rootID string) error {
	ids := strings.NewReplacer("@ESP@", espID, "@ROOT@", rootID)
	for _, p := range places {
		text, err := debianFiles.ReadFile("debian/" + p.from)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(tree, p.to), ids.Replace(string(text))); err != nil {
			return err
		}
		if err := os.Chmod(filepath.Join(tree, p.to), p.mode); err != nil {
			return err
		}
	}
	for link, to := range units {
		if err := replaceLink(to, filepath.Join(tree, link)); err != nil {
			return err
		}
	}
	if err := replaceLink("../run/systemd/resolve/stub-resolv.conf", filepath.Join(tree, "etc/resolv.conf")); err != nil {
		return err
	}
	for _, dir := range []string{"boot/efi", "var/lib/ingot"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o700); err != nil {
			return err
		}
	}
	return anonymous(tree)
}

// anonymous removes what must differ between machines. systemd fills an empty machine-id in.
func anonymous(tree string) error {
	// The pattern is constant and well formed, which is all that Glob complains about.
	keys, _ := filepath.Glob(filepath.Join(tree, "etc/ssh/ssh_host_*"))
	for _, name := range append(keys, filepath.Join(tree, "etc/hostname"), filepath.Join(tree, "var/lib/dbus/machine-id"),
		filepath.Join(tree, "var/lib/systemd/random-seed")) {
		if err := ignoreGone(os.Remove(name)); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(tree, "etc/machine-id"), nil, 0o444),
		replaceLink("/etc/machine-id", filepath.Join(tree, "var/lib/dbus/machine-id")),
	)
}

func replaceLink(to, name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := ignoreGone(os.Remove(name)); err != nil {
		return err
	}
	if err := os.Symlink(to, name); err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return nil
}
