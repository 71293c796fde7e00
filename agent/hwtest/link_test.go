package hwtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/hwtest"
	"github.com/ingot-metal/ingot/agent/inventory"
)

// ethtoolCmd is struct ethtool_cmd of linux/ethtool.h.
type ethtoolCmd struct {
	cmd, supported, advertising                   uint32
	speed                                         uint16
	duplex, port, phy, transceiver, autoneg, mdio uint8
	maxtx, maxrx                                  uint32
	speedHi                                       uint16
	mdix, _                                       uint8
	partner                                       uint32
	_                                             [2]uint32
}

// card makes a network interface of the kernel's own (tun/tap), with a link of some speed.
func card(t *testing.T, name string, mbps uint16) {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	hosttest.Must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) }) // the namespace ends with the process anyway
	ifr, err := unix.NewIfreq(name)
	hosttest.Must(t, err)
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	hosttest.Must(t, unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr))
	setSpeed(t, name, mbps)
	if out, err := exec.CommandContext(t.Context(), "ip", "link", "set", name, "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func setSpeed(t *testing.T, name string, mbps uint16) {
	t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	hosttest.Must(t, err)
	defer func() { _ = unix.Close(s) }() // nothing was written to it
	set := &ethtoolCmd{cmd: unix.ETHTOOL_SSET, speed: mbps, duplex: 1}
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:], name)
	req.data = unsafe.Pointer(set)
	if _, _, errno := unix.Syscall(
		unix.SYS_IOCTL,
		uintptr(s),
		unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&req)),
	); errno != 0 {
		t.Fatalf("set the speed of %s: %v", name, errno)
	}
}

// TestASlowerLinkIsSeen: link and speed are the kernel's at the time of the test, and not those of an inventory before.
func TestASlowerLinkIsSeen(t *testing.T) {
	if !hosttest.InNamespace(t) {
		return
	}
	card(t, "fast0", 25000)
	card(t, "slow0", 1000)
	root := t.TempDir()
	sys := filepath.Join(root, "sys")
	hosttest.Must(t, os.Mkdir(sys, 0o755))
	hosttest.Must(t, unix.Mount("sysfs", sys, "sysfs", unix.MS_RDONLY, "")) // that of this namespace
	defer func() { hosttest.Must(t, unix.Unmount(sys, unix.MNT_DETACH)) }()
	var doc inventory.Document
	for _, name := range []string{"fast0", "slow0", "gone0"} {
		doc.NICs = append(doc.NICs, inventory.NIC{Name: name, Driver: "tun", LinkUp: name != "gone0", SpeedMbps: 25000})
	}
	found := hwtest.Run(t.Context(), hwtest.Config{Root: root, Doc: doc, Tests: []string{hwtest.NIC}, For: time.Second})
	want := map[string]hwtest.Result{
		"tun fast0": {Verdict: hwtest.Passed, Figure: 25000}, "tun slow0": {Verdict: hwtest.Passed, Figure: 1000},
		"tun gone0": {Verdict: hwtest.Skipped},
	}
	if len(found) != len(want) {
		t.Errorf("%+v", found)
	}
	for _, r := range found {
		if w := want[r.Class]; r.Verdict != w.Verdict || r.Figure != w.Figure {
			t.Errorf("%+v, want %+v", r, w)
		}
	}
}
