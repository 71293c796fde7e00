package system

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"
)

// BusTime is how long a service on the system bus is given for an answer.
const BusTime = 5 * time.Second

// OnBus runs fn with a connection of its own to the system bus.
func OnBus(ctx context.Context, fn func(*dbus.Conn) error) (err error) {
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

// HasOwner reports whether a service runs, without starting it as a call would.
func (s *System) HasOwner(ctx context.Context, name string) bool {
	if !s.RunsSystemd() {
		return false
	}
	// Early in a boot the bus may take a connection and not answer yet.
	ctx, cancel := context.WithTimeout(ctx, BusTime)
	defer cancel()
	var there bool
	err := OnBus(ctx, func(c *dbus.Conn) error {
		return c.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0, name).Store(&there)
	})
	return err == nil && there
}
