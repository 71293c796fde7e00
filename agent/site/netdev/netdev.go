// Package netdev ties the services of a site to named network devices: sockets that neither hear nor speak anywhere
// else, and a watch that ends when the device does.
package netdev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/clock"
)

// ErrGone is the error of Watch: the device is another one than before, or there is none. Sockets that were tied to it
// are dead without saying so.
var ErrGone = errors.New("the network device is gone")

// Find returns the device of a name, if it is up and has the address.
func Find(name string, address netip.Addr) (*net.Interface, error) {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("find network device %s: %w", name, err)
	}
	if device.Flags&net.FlagUp == 0 {
		return nil, fmt.Errorf("network device %s is down", name)
	}
	addresses, err := device.Addrs()
	if err != nil {
		return nil, fmt.Errorf("read the addresses of network device %s: %w", name, err)
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == address {
			return device, nil
		}
	}
	return nil, fmt.Errorf("network device %s does not have the address %v", name, address)
}

// Control is for net.ListenConfig: the socket hears and speaks through the device only (SO_BINDTODEVICE, socket(7)).
func Control(device string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), device) })
		if err := errors.Join(err, failed); err != nil {
			return fmt.Errorf("tie socket to network device %s: %w", device, err)
		}
		return nil
	}
}

// ListenUDP opens a UDP socket of IPv4 on a port of a device.
func ListenUDP(ctx context.Context, device string, at netip.AddrPort) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: Control(device)}
	conn, err := lc.ListenPacket(ctx, "udp4", at.String())
	if err != nil {
		return nil, fmt.Errorf("listen on UDP port %d of %s: %w", at.Port(), device, err)
	}
	return conn.(*net.UDPConn), nil
}

// Watch returns ErrGone when the device of this name no longer is the given one, is down, or has lost the address. It
// returns ctx.Err() when ctx ends before that.
func Watch(ctx context.Context, c clock.Clock, device *net.Interface, address netip.Addr) error {
	tick := c.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C():
		}
		now, err := Find(device.Name, address)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
		if now.Index != device.Index {
			return fmt.Errorf("%w: %s was made anew", ErrGone, device.Name)
		}
	}
}
