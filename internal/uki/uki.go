// Package uki makes unified kernel images: one EFI program that holds a kernel, its initramfs and its command line
// (https://uapi-group.org/specifications/specs/unified_kernel_image/). It appends sections to the stub program of
// systemd-boot, for any architecture and without tools.
//
// The command line has room to spare and stands uncompressed at a place that Cmdline finds. So a boot server can
// hand the same image with another command line to every machine: it puts Fill's bytes over those of the file
// while it serves them. That breaks a signature over the image.
package uki

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// CmdlineBytes is the room for the command line. Linux takes up to 2047 bytes on x86 and arm64.
const CmdlineBytes = 1024

// ErrCmdline is returned when a command line can't be put into an image.
var ErrCmdline = errors.New("command line does not fit the image")

// Parts are what goes into an image.
type Parts struct {
	// Stub is systemd's linux<arch>.efi.stub.
	Stub []byte
	// Linux is a kernel that is an EFI program itself, and Initrd its initramfs.
	Linux, Initrd []byte
	// Cmdline is the image's command line until it is replaced.
	Cmdline string
	// OSRelease is in the form of os-release(5).
	OSRelease string
	// Release is what uname -r prints under the kernel.
	Release string
}

// Build returns the image. The same parts give the same bytes.
func Build(p Parts) ([]byte, error) {
	cmdline, err := Fill(p.Cmdline, CmdlineBytes)
	if err != nil {
		return nil, err
	}
	// The kernel comes last: it may unpack itself into what follows it in memory.
	return appendSections(p.Stub, []section{
		{".osrel", []byte(p.OSRelease)},
		{".uname", []byte(p.Release)},
		{".cmdline", cmdline},
		{".initrd", p.Initrd},
		{".linux", p.Linux},
	})
}

// Fill returns the command line with spaces up to size, which the kernel ignores.
func Fill(cmdline string, size int64) ([]byte, error) {
	for _, r := range cmdline {
		if r < ' ' || r > '~' {
			return nil, fmt.Errorf("%w: it has the character %q", ErrCmdline, r)
		}
	}
	if int64(len(cmdline)) > size {
		return nil, fmt.Errorf("%w: %d bytes, room for %d", ErrCmdline, len(cmdline), size)
	}
	return []byte(cmdline + strings.Repeat(" ", int(size)-len(cmdline))), nil
}

// Span is a part of a file, in bytes.
type Span struct {
	Offset, Size int64
}

// Cmdline finds the room for the command line in an image.
func Cmdline(image io.ReaderAt) (Span, error) {
	f, err := pe.NewFile(image)
	if err != nil {
		return Span{}, fmt.Errorf("read unified kernel image: %w", err)
	}
	s := f.Section(".cmdline")
	if s == nil {
		return Span{}, errors.New("read unified kernel image: no section .cmdline")
	}
	return Span{Offset: int64(s.Offset), Size: int64(s.VirtualSize)}, nil
}

// Machine is the architecture of an EFI program as Go names it: amd64 or arm64. A kernel with an EFI stub is one.
func Machine(program []byte) (string, error) {
	h, err := findHeaders(program)
	if err != nil {
		return "", err
	}
	switch machine := binary.LittleEndian.Uint16(program[h.coff:]); machine {
	case pe.IMAGE_FILE_MACHINE_AMD64:
		return "amd64", nil
	case pe.IMAGE_FILE_MACHINE_ARM64:
		return "arm64", nil
	default:
		return "", fmt.Errorf("EFI program is for machine %#x", machine)
	}
}

// Contents returns the data of a section; nil when there is none of that name.
func Contents(image []byte, name string) ([]byte, error) {
	f, err := pe.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, fmt.Errorf("read unified kernel image: %w", err)
	}
	s := f.Section(name)
	if s == nil {
		return nil, nil
	}
	data, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("read section %s: %w", name, err)
	}
	return data[:min(uint32(len(data)), s.VirtualSize)], nil
}
