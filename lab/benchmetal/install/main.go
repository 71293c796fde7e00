// Command install measures how long a machine takes from powered off with an empty disk to its new system, twice on
// this host: ordered through the API, and as somebody would do it by hand, who has dnsmasq, a web server and
//
//	wget -O - image.raw.zst | zstd -dc | dd of=/dev/vda bs=4M iflag=fullblock oflag=direct conv=fsync
//
// in an initramfs, reboots, and waits for the login prompt. Machine, firmware, kernel and image are the same. By hand
// nothing is decided, checked, read back or enrolled; what those cost is the difference.
//
// It needs root, QEMU, dnsmasq, busybox, zstd and coreutils, and ingot-controller, ingot-agent and ingot-image built.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ingot-metal/ingot/agent/pid1"
	"github.com/ingot-metal/ingot/lab/vm"
)

type options struct {
	image, programs, firmware string
	runs                      int
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench install:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if pid1.IsInit() {
		return pid1.Run(ctx, slog.Default(), func(sys *pid1.System) error { return inside(ctx, sys) })
	}
	var o options
	flag.StringVar(&o.image, "image", "dist/debian.raw.zst",
		"what is installed, compressed by zstd; as `ingot-image debian` makes it")
	flag.StringVar(&o.programs, "bin", "bin", "directory of ingot-controller, ingot-agent and ingot-image")
	flag.StringVar(&o.firmware, "firmware", "bios,uefi", "which machines, one after another")
	flag.IntVar(&o.runs, "runs", 1, "how often each is installed each way")
	flag.Parse()
	if os.Geteuid() != 0 {
		return fmt.Errorf("it makes network namespaces, which needs root")
	}
	image, err := filepath.Abs(o.image)
	if err != nil {
		return err
	}
	o.image = image
	return compare(ctx, o, os.Stdout)
}

func (o options) firmwares() []vm.Firmware {
	var all []vm.Firmware
	for name := range strings.SplitSeq(o.firmware, ",") {
		all = append(all, vm.Firmware(name))
	}
	return all
}
