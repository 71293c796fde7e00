package bootdisk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ingot-metal/ingot/imagebuild"
	"github.com/ingot-metal/ingot/internal/debian"
)

// minESP is the size in MiB below which a FAT with clusters of one sector is no FAT32, which has 65,525 at least.
const minESP = 34

// DefaultCmdline shows the console on screen and on the first serial port, and starts again after a panic.
const DefaultCmdline = "console=tty0 console=ttyS0,115200n8 panic=10 quiet"

// TinyConfig is the content of a tiny image: a system that is a kernel and the agent, and nothing else.
type TinyConfig struct {
	// Agent is the path of the static binary that becomes /init.
	Agent  string
	Kernel debian.Kernel
	// FirmwareDir is as in image.Config.
	FirmwareDir string
	// Compression of the initramfs is image.Zstd when empty.
	Compression imagebuild.Compression
	// Cmdline is DefaultCmdline and "ingot.net=dhcp" when empty. It carries no secrets.
	Cmdline string
	// Out is the file to write, compressed when its name ends in .zst.
	Out string
}

// Tiny builds a tiny image. The same inputs give the same bytes.
func Tiny(ctx context.Context, cfg TinyConfig) (r Result, err error) {
	if err := available([]string{"mformat", "mcopy", "mmd", "syslinux"},
		[]string{bootCodeFile, systemdBootFile}); err != nil {
		return r, err
	}
	if cfg.Compression == "" {
		cfg.Compression = imagebuild.Zstd
	}
	if cfg.Cmdline == "" {
		cfg.Cmdline = DefaultCmdline + " ingot.net=dhcp"
	}
	dir, err := os.MkdirTemp("", "ingot-image-*")
	if err != nil {
		return r, fmt.Errorf("make working directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	initrd := filepath.Join(dir, "initrd")
	machine := imagebuild.MachineConfig(cfg.Agent, cfg.Kernel, cfg.FirmwareDir, cfg.Compression, nil)
	machine.Out = initrd
	if err := imagebuild.Build(machine); err != nil {
		return r, err
	}
	s := system{title: "Ingot", cmdline: cfg.Cmdline, kernel: cfg.Kernel.Image, initrd: initrd}
	seed, err := s.seed()
	if err != nil {
		return r, err
	}
	size, err := s.size()
	if err != nil {
		return r, err
	}
	esp := filepath.Join(dir, "esp.img")
	if err := makeESP(ctx, esp, size, seed[:8], s); err != nil {
		return r, err
	}
	return assemble(ctx, cfg.Out, seed, []part{espPart(esp, size)})
}

// size is how many MiB hold the system: no more than it needs, because every byte of an image is written and read back.
func (s system) size() (int64, error) {
	var sum int64
	for _, name := range []string{s.kernel, s.initrd, systemdBootFile} {
		info, err := os.Stat(name)
		if err != nil {
			return 0, fmt.Errorf("size of what is to be started: %w", err)
		}
		sum += info.Size()
	}
	// An eighth for the file system itself and the second boot loader.
	return max(minESP, sum/mib*9/8+2), nil
}

// seed changes with the kernel, the initramfs and the command line.
func (s system) seed() (string, error) {
	h := sha256.New()
	h.Write([]byte(s.cmdline))
	for _, name := range []string{s.kernel, s.initrd} {
		data, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read what is to be started: %w", err)
		}
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func espPart(file string, sizeMiB int64) part {
	return part{name: espName, kind: typeESP, attributes: legacyBootable, file: file, size: sizeMiB * mib}
}

func assemble(ctx context.Context, out, seed string, parts []part) (Result, error) {
	bootCode, err := os.ReadFile(bootCodeFile)
	if err != nil {
		return Result{}, fmt.Errorf("read boot code: %w", err)
	}
	d, _, err := disk(bootCode, seed, parts)
	if err != nil {
		return Result{}, err
	}
	r, err := write(ctx, out, d)
	return r, errors.Join(err, d.Close())
}
