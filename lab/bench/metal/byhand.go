package metal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/ext4"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/bench/metal/guest"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/network"
	"github.com/ingot-metal/ingot/lab/vm"
)

const (
	siteIP  = "10.79.0.1"
	boot    = "http://" + siteIP + ":8080"
	port    = "tap1"
	diskMiB = 2048
	// cmdline has no secrets.
	cmdline = "console=ttyS0 panic=10 quiet edd=off no_timer_check ingot.role=installer ingot.token=none ingot.site=" +
		boot
)

// prepareByHand makes what machines boot from: the same kernel as the installer's, and an initramfs of package guest.
func prepareByHand(ctx context.Context, image, dir string) error {
	www := filepath.Join(dir, "www")
	if err := os.MkdirAll(www, 0o755); err != nil {
		return err
	}
	kernel, err := initramfs(ctx, dir, filepath.Join(www, "initrd"))
	if err != nil {
		return err
	}
	script := "#!ipxe\nkernel " + boot + "/kernel initrd=initrd " + cmdline + "\ninitrd " + boot + "/initrd\nboot\n"
	return errors.Join(
		os.Symlink(kernel.Image, filepath.Join(www, "kernel")),
		os.Symlink(image, filepath.Join(www, guest.Image)),
		os.WriteFile(filepath.Join(www, "boot.ipxe"), []byte(script), 0o644),
	)
}

// byHand installs one machine and returns when each part was over.
func byHand(ctx context.Context, dir string, firmware vm.Firmware) (began time.Time, stages []metal.Stage, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rack, err := network.New()
	if err != nil {
		return began, nil, err
	}
	defer func() { err = errors.Join(err, rack.Close()) }()
	ended, err := serveByHand(ctx, rack, dir)
	if err != nil {
		return began, nil, err
	}
	defer func() {
		cancel()
		ended()
	}()
	work, err := os.MkdirTemp(dir, "m-")
	if err != nil {
		return began, nil, err
	}
	cfg, err := machineByHand(rack, work, firmware)
	if err != nil {
		return began, nil, err
	}
	began = time.Now()
	v, err := vm.Start(ctx, cfg)
	if err != nil {
		return began, nil, err
	}
	defer func() { err = errors.Join(err, v.Stop(), os.RemoveAll(work)) }()
	// One-shot boot from the network: the order is read again at the next reset only.
	if err := v.SetNetworkFirst(ctx, false); err != nil {
		return began, nil, err
	}
	stages, err = watch(ctx, v, began)
	return began, stages, err
}

// serveByHand starts the servers of the segment, which end with ctx; the function waits for that.
func serveByHand(ctx context.Context, rack *network.Namespace, dir string) (func(), error) {
	sw, err := rack.Switch("rack0")
	if err != nil {
		return nil, err
	}
	err = errors.Join(sw.Card(rack, "site0", netip.MustParsePrefix(siteIP+"/24")),
		rack.Address("site0", netip.MustParsePrefix("fd79::1/64")), sw.Tap(port))
	if err != nil {
		return nil, err
	}
	l, err := rack.Listen(siteIP + ":8080")
	if err != nil {
		return nil, err
	}
	web := &http.Server{Handler: http.FileServer(http.Dir(filepath.Join(dir, "www"))), ReadHeaderTimeout: time.Minute}
	dnsmasq := rack.Command(ctx, "dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--user=root",
		"--interface=site0",
		"--dhcp-leasefile="+filepath.Join(dir, "leases"), "--dhcp-range=10.79.0.100,10.79.0.199", "--no-ping",
		"--enable-ra", "--dhcp-range=fd79::,ra-only", "--dhcp-match=set:ipxe,175",
		"--dhcp-match=set:efi,option:client-arch,7",
		"--dhcp-boot=tag:ipxe,"+boot+"/boot.ipxe", "--dhcp-boot=tag:!ipxe,tag:efi,snponly.efi",
		"--enable-tftp", "--tftp-root=/usr/lib/ipxe")
	g, ctx := task.New(ctx)
	g.Go("web server", func(context.Context) error { return web.Serve(l) })
	g.Go("dnsmasq", func(context.Context) error { return dnsmasq.Run() })
	g.Go("end", func(context.Context) error {
		<-ctx.Done()
		return web.Close()
	})
	return func() { _ = g.Wait() }, nil // they end by their context
}

func machineByHand(rack *network.Namespace, dir string, firmware vm.Firmware) (vm.Config, error) {
	target, state := filepath.Join(dir, "disk.qcow2"), filepath.Join(dir, "state.raw")
	b, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", target, fmt.Sprintf("%dM", diskMiB)).CombinedOutput()
	if err != nil {
		return vm.Config{}, fmt.Errorf("make disk: %w: %s", err, b)
	}
	// The new system looks for it after either install.
	if err := ext4.StateDisk(state, nil); err != nil {
		return vm.Config{}, err
	}
	return vm.Config{
		Name: "by-hand", Dir: filepath.Join(dir, "vm"), Firmware: firmware, Tap: port, Launcher: rack.Prefix(),
		NetworkFirst: true, MemoryMB: 512,
		Disks: []vm.Disk{{Path: target, Serial: "d0"}, {Path: state, Serial: "d1"}},
	}, nil
}

// watch reads the console. An install by hand is over at the login prompt.
func watch(ctx context.Context, v *vm.VM, began time.Time) ([]metal.Stage, error) {
	var stages []metal.Stage
	last := began
	for _, s := range []struct{ name, text string }{
		{"firmware, kernel, initramfs", guest.Up}, {"image written", guest.Written}, {"reboot, login prompt", "login:"},
	} {
		said, err := v.WaitSerial(ctx, func(said string) bool {
			return strings.Contains(said, s.text) || strings.Contains(said, guest.Failed)
		})
		if err != nil {
			return nil, fmt.Errorf("wait for %q: %w", s.text, err)
		}
		if _, why, failed := strings.Cut(said, guest.Failed); failed {
			return nil, fmt.Errorf("install by hand: %s", why)
		}
		now := time.Now()
		stages = append(stages, metal.Stage{Name: s.name, Ended: now, Took: now.Sub(last)})
		last = now
	}
	return stages, nil
}
