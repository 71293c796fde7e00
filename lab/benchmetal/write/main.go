// Command write measures how fast an image gets onto a disk: by the installer's engine, and by
//
//	zstd -dc image.zst | dd of=/dev/disk bs=4M iflag=fullblock oflag=direct conv=fsync
//
// on the same virtual disk of the same machine, in turns. The machine is one of the laboratory's, emulated, with one
// processor; its own program is this one. The compressed file lies in the machine's memory, so that nothing but
// decompression and disk is measured; in the last row the engine gets it by HTTP from a server in the same machine,
// which shares its processor.
//
// The write phase ends when the disk has confirmed that everything is durable. The reading back, which dd does not do,
// is reported beside it.
//
// It needs QEMU, zstd, coreutils and sgdisk.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/ingot-metal/ingot/agent/pid1"
)

type options struct {
	sizeMiB, zeros, runs, memoryMiB int
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench write:", err)
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
	flag.IntVar(&o.sizeMiB, "size", 512, "size of the raw image in MiB")
	flag.IntVar(&o.zeros, "zeros", 0, "percent of the image that are zeros; images of systems have half and more")
	flag.IntVar(&o.runs, "runs", 3, "how often each way is measured")
	flag.IntVar(&o.memoryMiB, "memory", 1024, "memory of the machine in MiB; the compressed file must fit")
	flag.Parse()
	return outside(ctx, o, os.Stdout)
}
