// Package networkmanager configures interfaces through NetworkManager, by connections of our own below
// /etc/NetworkManager/system-connections.
package networkmanager

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/internal/clock"
)

const (
	busName  = "org.freedesktop.NetworkManager"
	root     = dbus.ObjectPath("/org/freedesktop/NetworkManager")
	settings = root + "/Settings"
	service  = "NetworkManager.service"
	dir      = "etc/NetworkManager/system-connections"
	prefix   = dir + "/ingot-"
	suffix   = ".nmconnection"
	loadTime = 20 * time.Second
	backTime = 5 * time.Second
	backPoll = 100 * time.Millisecond
	// States of a device (NMDeviceState): between disconnected and activated NetworkManager works on it.
	unmanaged, disconnected, activated = 10, 30, 100
)

// Manager is NetworkManager.
type Manager struct{ *system.System }

var _ network.Manager = Manager{}

// Name is how records call it.
func (Manager) Name() string { return network.NetworkManager }

// Mode is that of its files: it reads none that others could.
func (Manager) Mode() fs.FileMode { return 0o600 }

// Dir is where its files are.
func (Manager) Dir() string { return dir }

// State reports whether NetworkManager is on the bus, or starts or stops just now.
func (m Manager) State(ctx context.Context) (network.ManagerState, error) {
	return network.StateOnBus(ctx, m.System, busName, service)
}

// Has reports whether one of the interfaces is its own.
func (m Manager) Has(ctx context.Context, names []string) bool {
	for _, state := range m.states(ctx, names) {
		if state > unmanaged {
			return true
		}
	}
	return false
}

// Files reads our connections.
func (m Manager) Files() (map[string]string, error) {
	return network.ReadFiles(m.System, prefix+"*"+suffix)
}

// Ours reports whether a file is one of them.
func (Manager) Ours(path string) bool {
	return strings.HasPrefix(path, prefix) && strings.HasSuffix(path, suffix)
}

// Render returns the connections of the configuration, by path.
func (Manager) Render(c network.Config, cards network.Cards) (map[string]string, error) {
	files := map[string]string{}
	for _, p := range profiles(c, cards) {
		files[prefix+p.link+suffix] = p.text
	}
	return files, nil
}

// Before are the files as they were saved: all of them are ours.
func (Manager) Before(saved map[string]string) (map[string]string, error) {
	return saved, nil
}

// TellsResolver: it writes resolv.conf itself, or notifies the program that does.
func (Manager) TellsResolver(context.Context) bool { return true }

// Release does nothing: a device takes another connection without giving up the first.
func (Manager) Release(context.Context, []string) error { return nil }

// Nudge does nothing: it would begin anew with what takes its time.
func (Manager) Nudge(context.Context, []string) error { return nil }

// Active reads which connection each interface has, by UUID.
func (m Manager) Active(ctx context.Context) (map[string]string, error) {
	active := map[string]string{}
	if !m.HasOwner(ctx, busName) {
		return active, nil
	}
	err := m.onBus(ctx, func(b bus) error {
		var all []dbus.ObjectPath
		if err := b.get(root, "", "ActiveConnections", &all); err != nil {
			return err
		}
		for _, a := range all {
			var id string
			var devices []dbus.ObjectPath
			err := b.get(a, ".Connection.Active", "Uuid", &id)
			if err == nil {
				err = b.get(a, ".Connection.Active", "Devices", &devices)
			}
			for _, d := range devices {
				var name string
				if err == nil {
					err = b.get(d, ".Device", "Interface", &name)
				}
				active[name] = id
			}
			if err != nil && !isGone(err) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read which connections are active: %w", err)
	}
	return active, nil
}

// Read has NetworkManager read its files. A connection whose file is gone is ended, and its device is given to the next
// one; a virtual device goes.
func (m Manager) Read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	return m.onBus(ctx, func(b bus) error {
		var read bool
		if err := b.call(settings, ".Settings.ReloadConnections").Store(&read); err != nil {
			return fmt.Errorf("have NetworkManager read its files: %w", err)
		}
		return nil
	})
}

// Load activates what was read.
func (m Manager) Load(ctx context.Context, l network.Load) error {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	return m.onBus(ctx, func(b bus) error {
		if l.Config == nil {
			return m.back(ctx, b, l.Active)
		}
		for _, p := range profiles(*l.Config, l.Cards) {
			if err := b.activate(idOf(p.link), p.link, p.virtual); err != nil {
				return fmt.Errorf("activate the connection of %s: %w", p.link, err)
			}
		}
		return nil
	})
}

// back restores the connections of devices, and waits a while until they are in force: addresses that are added beside
// NetworkManager have other routes than its own. A connection that was made up for what the kernel showed comes back by
// itself.
func (m Manager) back(ctx context.Context, b bus, was map[string]string) error {
	now, err := m.Active(ctx)
	if err != nil {
		return err
	}
	var given []string
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if now[name] == was[name] && was[name] != idOf(name) {
			continue
		}
		err := b.activate(was[name], name, false)
		switch {
		case err == nil:
			given = append(given, name)
		case !isGone(err):
			m.Log.Warn("a connection did not come back", "interface", name, "uuid", was[name], "error", err)
		}
	}
	patience := clock.Real().After(backTime) // a lease may never come
	for {
		states := m.states(ctx, given)
		if now, err = m.Active(ctx); err != nil {
			return err
		}
		waits := func(name string) bool { return now[name] != was[name] || states[name] != activated }
		if !slices.ContainsFunc(given, waits) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-patience:
			return nil
		case <-clock.Real().After(backPoll):
		}
	}
}

// Busy returns those interfaces that NetworkManager activates or ends a connection of.
func (m Manager) Busy(ctx context.Context, names []string) map[string]string {
	busy := map[string]string{}
	for name, state := range m.states(ctx, names) {
		if state > disconnected && state != activated {
			busy[name] = "configuring"
		}
	}
	return busy
}

// states reads what it does with devices. One that it does not know has none.
func (m Manager) states(ctx context.Context, names []string) map[string]uint32 {
	states := map[string]uint32{}
	_ = m.onBus(ctx, func(b bus) error { // without an answer there is no state
		for _, name := range names {
			var state uint32
			if device, err := b.device(name); err == nil && b.get(device, ".Device", "State", &state) == nil {
				states[name] = state
			}
		}
		return nil
	})
	return states
}
