// Package networkd configures interfaces through systemd-networkd, by files of our own prefix below
// /etc/systemd/network.
package networkd

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/vishvananda/netlink"

	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/system"
)

const (
	busName = "org.freedesktop.network1"
	service = "systemd-networkd.service"
	dir     = "etc/systemd/network"
	// ReloadLimit is for a networkd that answers late. One that hangs does not block changes in the kernel.
	ReloadLimit = 10 * time.Second
	// pingTime detects the one that hangs.
	pingTime = 2 * time.Second
	// restartTime is for a start on a machine that is busy: each try to go back would end the start of the one before.
	restartTime = 30 * time.Second
)

// Manager is systemd-networkd.
type Manager struct{ *system.System }

var _ network.Manager = Manager{}

// Name is how records call it.
func (Manager) Name() string { return network.Networkd }

// Mode is that of its files.
func (Manager) Mode() fs.FileMode { return 0o644 }

// Dir is where its files are.
func (Manager) Dir() string { return dir }

// Runs reports whether it is on the bus.
func (m Manager) Runs(ctx context.Context) bool { return m.HasOwner(ctx, busName) }

// State reports whether networkd is on the bus, or starts or stops just now.
func (m Manager) State(ctx context.Context) (network.ManagerState, error) {
	return network.StateOnBus(ctx, m.System, busName, service)
}

// Has reports whether it has configured one of the interfaces, or is about to.
func (m Manager) Has(ctx context.Context, names []string) bool {
	for _, state := range m.adminStates(ctx, names) {
		if state != "unmanaged" {
			return true
		}
	}
	return false
}

// Files reads our files.
func (m Manager) Files() (map[string]string, error) {
	return network.ReadFiles(m.System, dir+"/"+networkPrefix+"*")
}

// Ours reports whether a file is one of them.
func (Manager) Ours(path string) bool { return strings.HasPrefix(path, dir+"/"+networkPrefix) }

// Before are the files as they were saved: all of them are ours.
func (Manager) Before(saved map[string]string) (map[string]string, error) {
	return saved, nil
}

// Active returns nil: networkd follows its files alone.
func (Manager) Active(context.Context) (map[string]string, error) { return nil, nil }

// Release does nothing: networkd takes another configuration without giving up the first.
func (Manager) Release(context.Context, []string) error { return nil }

// TellsResolver: networkd passes the servers to systemd-resolved, where that runs.
func (m Manager) TellsResolver(ctx context.Context) bool { return m.HasOwner(ctx, network.Resolved) }

// Read does nothing: a reload configures too.
func (Manager) Read(context.Context) error { return nil }

// Load has networkd read its files, and configure the differences (org.freedesktop.network1(5)). Where a bond or VLAN
// was removed it is restarted instead, which keeps configured interfaces: it would remember a VLAN as it was, and take
// the old bond for the new one (seen with systemd 252). One that is about to come is restarted in any case.
func (m Manager) Load(ctx context.Context, l network.Load) error {
	restart, limit := l.Coming || len(l.Removed) > 0, ReloadLimit
	if restart && (l.Coming || m.answers(ctx)) {
		limit = restartTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if restart {
		if err := m.Kernel.Restart(ctx, service); err != nil {
			return err
		}
		m.flushNames(ctx)
		return nil
	}
	err := system.OnBus(ctx, func(c *dbus.Conn) error {
		return c.Object(busName, "/org/freedesktop/network1").CallWithContext(ctx, busName+".Manager.Reload", 0).Err
	})
	if err != nil {
		return fmt.Errorf("reload systemd-networkd: %w", err)
	}
	m.flushNames(ctx)
	return nil
}

func (m Manager) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	return system.OnBus(ctx, func(c *dbus.Conn) error {
		return c.Object(busName, "/org/freedesktop/network1").CallWithContext(ctx, "org.freedesktop.DBus.Peer.Ping", 0).Err
	}) == nil
}

// flushNames makes the next look-up a new one.
func (m Manager) flushNames(ctx context.Context) {
	if !m.HasOwner(ctx, network.Resolved) {
		return
	}
	// A cache that is not emptied expires; the proof that follows needs more than names.
	_ = system.OnBus(ctx, func(c *dbus.Conn) error {
		return c.Object(network.Resolved, "/org/freedesktop/resolve1").CallWithContext(ctx,
			network.Resolved+".Manager.FlushCaches", 0).Err
	})
}

// Nudge has networkd configure each of the named interfaces anew, whatever it thinks of it.
func (m Manager) Nudge(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, system.BusTime)
	defer cancel()
	return system.OnBus(ctx, func(conn *dbus.Conn) error {
		for _, name := range names {
			link, err := netlink.LinkByName(name)
			if network.IsNoLink(err) {
				continue // the diff shows it
			}
			if err != nil {
				return fmt.Errorf("find %s: %w", name, err)
			}
			err = conn.Object(busName, "/org/freedesktop/network1").
				CallWithContext(ctx, busName+".Manager.ReconfigureLink", 0, int32(link.Attrs().Index)).Err
			if err != nil {
				return fmt.Errorf("reconfigure %s: %w", name, err)
			}
		}
		return nil
	})
}

// Busy returns the states of those interfaces on which networkd is still working.
func (m Manager) Busy(ctx context.Context, names []string) map[string]string {
	states := m.adminStates(ctx, names)
	for name, state := range states {
		if state == "configured" || state == "unmanaged" {
			delete(states, name)
		}
	}
	return states
}

// adminStates asks networkd what it makes of links, by name. One has no state where there is no networkd, or no such
// link.
func (m Manager) adminStates(ctx context.Context, names []string) map[string]string {
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, system.BusTime)
	defer cancel()
	states := map[string]string{}
	_ = system.OnBus(ctx, func(c *dbus.Conn) error { // without an answer there is no state
		for _, name := range names {
			link, err := netlink.LinkByName(name)
			if err != nil {
				continue
			}
			var state string
			err = c.Object(busName, linkPath(link.Attrs().Index)).
				CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, busName+".Link",
					"AdministrativeState").Store(&state)
			if err == nil {
				states[name] = state
			}
		}
		return nil
	})
	return states
}

// linkPath escapes the leading digit, as sd_bus_path_encode(3) does.
func linkPath(index int) dbus.ObjectPath {
	n := strconv.Itoa(index)
	return dbus.ObjectPath(fmt.Sprintf("/org/freedesktop/network1/link/_%x%s", n[0], n[1:]))
}
