package netdump_test

import (
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/netdump"
)

// Addresses come and go while the list is read, in a network namespace of this thread.
func TestAListIsReadUntilItIsComplete(t *testing.T) {
	runtime.LockOSThread() // and the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("needs root: a network namespace of its own: %v", err)
	}
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	inside, err := netlink.NewHandle()
	must(t, err)
	// So many that the kernel sends them in several messages, between which it can be interrupted.
	for i := range 600 {
		must(t, inside.AddrAdd(lo, address(byte(i>>8), byte(i))))
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		beat := time.NewTicker(2 * time.Millisecond)
		defer beat.Stop()
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			case <-beat.C:
			}
			err := errors.Join(inside.AddrAdd(lo, address(9, 9)), inside.AddrDel(lo, address(9, 9)))
			if err != nil {
				stopped <- err
				return
			}
		}
	}()
	var interrupted int
	for end := time.Now().Add(20 * time.Second); interrupted < 5 && time.Now().Before(end); {
		if _, err := netlink.AddrList(lo, netlink.FAMILY_V4); errors.Is(err, netlink.ErrDumpInterrupted) {
			interrupted++
		}
		got, err := netdump.Addresses(lo, netlink.FAMILY_V4)
		if err != nil || len(got) < 600 {
			t.Fatalf("%d addresses, %v", len(got), err)
		}
	}
	close(stop)
	must(t, <-stopped)
	if interrupted == 0 {
		t.Error("the kernel never interrupted a list: this test shows nothing")
	}
}

func address(a, b byte) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 1, a, b), Mask: net.CIDRMask(32, 32)}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
