package netdev_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/site/netdev"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

var home = netip.MustParseAddr("127.0.0.1")

func TestFind(t *testing.T) {
	t.Parallel()
	device, err := netdev.Find("lo", home)
	if err != nil || device.Name != "lo" {
		t.Fatalf("%v, %v", device, err)
	}
	if _, err := netdev.Find("no-such-device", home); err == nil {
		t.Error("found a device that is not there")
	}
	if _, err := netdev.Find("lo", netip.MustParseAddr("192.0.2.1")); err == nil ||
		!strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("an address that it does not have: %v", err)
	}
}

func TestListenUDP(t *testing.T) {
	t.Parallel()
	conn, err := netdev.ListenUDP(t.Context(), "lo", netip.AddrPortFrom(home, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	port := conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	if second, err := netdev.ListenUDP(t.Context(), "lo", netip.AddrPortFrom(home, port)); err == nil {
		_ = second.Close() // it should not be there
		t.Error("two sockets on one port of one device")
	}
	if none, err := netdev.ListenUDP(t.Context(), "no-such-device", netip.AddrPortFrom(home, 0)); err == nil {
		_ = none.Close() // it should not be there
		t.Error("a socket on a device that is not there")
	}
}

func TestWatchEndsWithTheDevice(t *testing.T) {
	t.Parallel()
	other := net.Interface{Name: "lo", Index: 4711}
	for _, c := range []struct {
		device  net.Interface
		address netip.Addr
	}{{other, home}, {net.Interface{Name: "no-such-device"}, home}} {
		fake := clock.NewFake(time.Now())
		g, _ := task.New(t.Context())
		var got error
		g.Go("watch", func(ctx context.Context) error {
			got = netdev.Watch(ctx, fake, &c.device, c.address)
			return nil
		})
		if err := fake.BlockUntil(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		fake.Advance(2 * time.Second)
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(got, netdev.ErrGone) {
			t.Errorf("%+v: %v", c, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := netdev.Watch(ctx, clock.NewFake(time.Now()), &other, home); !errors.Is(err, context.Canceled) {
		t.Errorf("a watch that is told to stop: %v", err)
	}
}
