package networkmanager

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/internal/clock"
)

// bus is a connection to NetworkManager.
type bus struct {
	ctx  context.Context
	conn *dbus.Conn
}

func (m Manager) onBus(ctx context.Context, fn func(bus) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, system.BusTime)
		defer cancel()
	}
	return system.OnBus(ctx, func(conn *dbus.Conn) error { return fn(bus{ctx, conn}) })
}

// call calls a method of one of NetworkManager's interfaces, such as .Settings.ReloadConnections.
func (b bus) call(object dbus.ObjectPath, method string, args ...any) *dbus.Call {
	return b.conn.Object(busName, object).CallWithContext(b.ctx, busName+method, 0, args...)
}

func (b bus) get(object dbus.ObjectPath, of, property string, into any) error {
	return b.conn.Object(busName, object).CallWithContext(b.ctx, "org.freedesktop.DBus.Properties.Get", 0, busName+of,
		property).Store(into)
}

func (b bus) device(name string) (device dbus.ObjectPath, err error) {
	err = b.call(root, ".GetDeviceByIpIface", name).Store(&device)
	return device, err
}

// activate begins to give a device a connection, as activateOnce. NetworkManager answers PermissionDenied, to root as
// well, when its own autoconnect activates the connection at the same moment: that is asked again, up to backTime.
func (b bus) activate(id, link string, virtual bool) error {
	patience := clock.Real().After(backTime)
	for {
		err := b.activateOnce(id, link, virtual)
		if !isOne(err, ".PermissionDenied") {
			return err
		}
		select {
		case <-b.ctx.Done():
			return err
		case <-patience:
			return err
		case <-clock.Real().After(backPoll):
		}
	}
}

// activateOnce begins to give a device a connection. NetworkManager makes a virtual device by itself.
func (b bus) activateOnce(id, link string, virtual bool) error {
	var connection, active dbus.ObjectPath
	if err := b.call(settings, ".Settings.GetConnectionByUuid", id).Store(&connection); err != nil {
		return err
	}
	device := dbus.ObjectPath("/")
	if !virtual {
		var err error
		if device, err = b.device(link); err != nil {
			return err
		}
	}
	return b.call(root, ".ActivateConnection", connection, device, dbus.ObjectPath("/")).Store(&active)
}

// isGone reports whether NetworkManager does not know a connection or device, or not any more.
func isGone(err error) bool {
	return isOne(err, ".Settings.InvalidConnection", ".UnknownDevice", ".UnknownConnection",
		"org.freedesktop.DBus.Error.UnknownMethod", "org.freedesktop.DBus.Error.UnknownObject")
}

// isOne reports whether err is an error of the bus with one of the names. A name that begins with a dot is
// NetworkManager's.
func isOne(err error, names ...string) bool {
	var remote dbus.Error
	return errors.As(err, &remote) && slices.ContainsFunc(names, func(name string) bool {
		return remote.Name == name || strings.HasPrefix(name, ".") && remote.Name == busName+name
	})
}
