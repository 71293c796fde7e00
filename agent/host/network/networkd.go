package network

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/vishvananda/netlink"
)

const (
	networkdName = "org.freedesktop.network1"
	networkdUnit = "systemd-networkd.service"
	resolvedName = "org.freedesktop.resolve1"
	busTime      = 5 * time.Second
	// ReloadLimit is for a networkd that answers late. One that hangs keeps nobody from the kernel.
	ReloadLimit = 10 * time.Second
	// pingTime tells the one that hangs.
	pingTime = 2 * time.Second
	// restartTime is for a start on a machine that is busy: each try to go back would end the start of the one before.
	restartTime = 30 * time.Second
)

// onBus runs fn with a connection of its own to the system bus.
func onBus(ctx context.Context, fn func(*dbus.Conn) error) (err error) {
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("connect to the system bus: %w", err)
	}
	defer func() {
		if e := conn.Close(); e != nil && ctx.Err() == nil {
			err = errors.Join(err, fmt.Errorf("close the system bus: %w", e))
		}
	}()
	return fn(conn)
}

// hasOwner says whether a service runs, without starting it as a call would.
func (n *Configurator) hasOwner(ctx context.Context, name string) bool {
	if !n.RunsSystemd() {
		return false
	}
	// Early in a boot the bus may take a connection and not answer yet.
	ctx, cancel := context.WithTimeout(ctx, busTime)
	defer cancel()
	var there bool
	err := onBus(ctx, func(c *dbus.Conn) error {
		return c.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0, name).Store(&there)
	})
	return err == nil && there
}

func (n *Configurator) NetworkdRuns(ctx context.Context) bool { return n.hasOwner(ctx, networkdName) }

// applyNetworkd writes the files and has them read. networkd neither changes nor removes a bond or VLAN that it has
// made, so those that are outdated go first.
func (n *Configurator) applyNetworkd(ctx context.Context, c Config, was, want []SavedLink) error {
	files, err := n.wantedFiles(c)
	if err != nil {
		return err
	}
	if err := n.writeFiles(files); err != nil {
		return err
	}
	removed, err := removeOutdated(was, want)
	if err != nil {
		return err
	}
	return n.Reload(ctx, removed, false)
}

// networkdComes reports whether networkd, which is not on the bus, is started or stopped just now.
func (n *Configurator) networkdComes(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, busTime)
	defer cancel()
	state, err := n.Kernel.UnitState(ctx, networkdUnit)
	return err == nil && state != "inactive" && state != "failed", err
}

// Reload has networkd read its files, and configure what they say otherwise than before (org.freedesktop.network1(5)).
// Where a bond or VLAN was removed it is restarted instead, which leaves what is configured alone: it would remember a
// VLAN as it was, and take the old bond for the new one (seen with systemd 252). anew restarts it in any case.
func (n *Configurator) Reload(ctx context.Context, removed []string, anew bool) error {
	restart, limit := anew || len(removed) > 0, ReloadLimit
	if restart && (anew || n.networkdAnswers(ctx)) {
		limit = restartTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if restart {
		if err := n.Kernel.Restart(ctx, networkdUnit); err != nil {
			return err
		}
		n.flushNames(ctx)
		return nil
	}
	err := onBus(ctx, func(c *dbus.Conn) error {
		return c.Object(networkdName, "/org/freedesktop/network1").CallWithContext(ctx, networkdName+".Manager.Reload", 0).Err
	})
	if err != nil {
		return fmt.Errorf("reload systemd-networkd: %w", err)
	}
	n.flushNames(ctx)
	return nil
}

func (n *Configurator) networkdAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	return onBus(ctx, func(c *dbus.Conn) error {
		return c.Object(networkdName, "/org/freedesktop/network1").CallWithContext(ctx,
			"org.freedesktop.DBus.Peer.Ping", 0).Err
	}) == nil
}

// flushNames makes the next look-up a new one.
func (n *Configurator) flushNames(ctx context.Context) {
	if !n.hasOwner(ctx, resolvedName) {
		return
	}
	// A cache that is not emptied expires; the proof that follows needs more than names.
	_ = onBus(ctx, func(c *dbus.Conn) error {
		return c.Object(resolvedName, "/org/freedesktop/resolve1").CallWithContext(ctx, resolvedName+".Manager.FlushCaches",
			0).Err
	})
}

// nudge has networkd configure each of the named interfaces anew, whatever it thinks of it.
func (n *Configurator) nudge(ctx context.Context, names []string) error {
	if !n.RunsSystemd() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, busTime)
	defer cancel()
	return onBus(ctx, func(conn *dbus.Conn) error {
		for _, name := range names {
			link, err := netlink.LinkByName(name)
			if isNoLink(err) {
				continue // the diff says so
			}
			if err != nil {
				return fmt.Errorf("find %s: %w", name, err)
			}
			err = conn.Object(networkdName, "/org/freedesktop/network1").
				CallWithContext(ctx, networkdName+".Manager.ReconfigureLink", 0, int32(link.Attrs().Index)).Err
			if err != nil {
				return fmt.Errorf("reconfigure %s: %w", name, err)
			}
		}
		return nil
	})
}

// adminStates asks networkd what it makes of links, by name. One has no state where there is no networkd, or no such
// link.
func (n *Configurator) adminStates(ctx context.Context, names []string) map[string]string {
	if !n.RunsSystemd() || len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, busTime)
	defer cancel()
	states := map[string]string{}
	_ = onBus(ctx, func(c *dbus.Conn) error { // what has no answer has no state
		for _, name := range names {
			link, err := netlink.LinkByName(name)
			if err != nil {
				continue
			}
			var state string
			err = c.Object(networkdName, linkPath(link.Attrs().Index)).
				CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, networkdName+".Link",
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
