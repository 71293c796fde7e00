package cdimage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Loader is Debian's isolinux: the program that a BIOS loads, and its module.
type Loader struct {
	// Program is isolinux.bin, and Module ldlinux.c32.
	Program, Module []byte
}

// Config is the content of the CD. UEFI needs EFI; BIOS needs Loader and Kernel.
type Config struct {
	// EFI is a unified kernel image, and Arch its architecture: amd64 or arm64.
	EFI  []Part
	Arch string
	// Loader starts the kernel with the initramfs, More unpacked over it, and the command line.
	Loader  *Loader
	Kernel  Part
	Initrd  Part
	More    []byte
	Cmdline string
}

const (
	block = 2048
	// Blocks of the volume (ECMA-119, 6.2.1 and 8).
	volumeAt, bootAt, endAt, tableAt, tableBigAt, rootAt, catalogAt, filesAt = 16, 17, 18, 19, 20, 21, 22, 23
	// tableLen is the length of a path table of the root alone.
	tableLen = 10
	// loaderBlocks of 512 bytes are what a BIOS loads of the loader (isolinux' documentation, "-boot-load-size 4").
	loaderBlocks = 4
	// maxCmdline is isolinux' limit for a line of its configuration.
	maxCmdline = 2000
)

// Platforms of the boot catalogue (El Torito, 2.1; UEFI 2.10, 13.3.2.1).
const (
	platformBIOS, platformEFI = 0, 0xef
)

// programs are the names under which firmware looks for a program (UEFI 2.10, 3.5.1.1), as FAT has them.
var programs = map[string]string{"amd64": "BOOTX64 EFI", "arm64": "BOOTAA64EFI"}

// file is one of the volume. Its name is as ISO 9660 has it.
type file struct {
	name string
	part Part
	at   uint32 // block
}

// New lays out an image.
func New(c Config) (*Image, error) {
	if c.EFI == nil && c.Loader == nil {
		return nil, errors.New("make a boot image: neither for UEFI nor for BIOS")
	}
	var files []file
	if c.Loader != nil {
		var err error
		if files, err = c.biosFiles(); err != nil {
			return nil, err
		}
	}
	body, next := &Image{}, uint32(filesAt)
	for i := range files {
		files[i].at = next
		if files[i].name == loaderName {
			files[i].part.Data = patchLoader(files[i].part.Data, next)
		}
		body.add(files[i].part)
		body.pad(block)
		next = filesAt + uint32(body.size/block)
	}
	efiAt := next
	if c.EFI != nil {
		name, ok := programs[c.Arch]
		if !ok {
			return nil, fmt.Errorf("make a boot image for architecture %q: not amd64 or arm64", c.Arch)
		}
		volume, err := efiVolume(name, join(c.EFI...))
		if err != nil {
			return nil, err
		}
		body.add(Part{From: volume, Size: volume.size})
		body.pad(block)
	}
	total := filesAt + uint32(body.size/block)
	image := join(Part{Size: volumeAt * block}, Part{Data: head(files, efiAt, total, c.EFI != nil)})
	image.add(Part{From: body, Size: body.size})
	return image, nil
}

const (
	loaderName = "ISOLINUX.BIN;1"
	loaderLen  = 64 // of what the loader has before what its checksum covers
)

func (c Config) biosFiles() ([]file, error) {
	if len(c.Cmdline) > maxCmdline || strings.ContainsAny(c.Cmdline, "\r\n") {
		return nil, fmt.Errorf("make a boot image: a command line of %d bytes, or of several lines", len(c.Cmdline))
	}
	if len(c.Loader.Program) <= loaderLen {
		return nil, errors.New("make a boot image: isolinux.bin is no boot loader")
	}
	config := "DEFAULT ingot\nPROMPT 0\nTIMEOUT 0\nLABEL ingot\n  LINUX /kernel\n  INITRD /initrd,/more\n  APPEND " +
		c.Cmdline + "\n"
	return []file{
		{name: "INITRD.;1", part: c.Initrd},
		{name: "ISOLINUX.BIN;1", part: Part{Data: c.Loader.Program}},
		{name: "ISOLINUX.CFG;1", part: Part{Data: []byte(config)}},
		{name: "KERNEL.;1", part: c.Kernel},
		{name: "LDLINUX.C32;1", part: Part{Data: c.Loader.Module}},
		{name: "MORE.;1", part: Part{Data: c.More}},
	}, nil
}

// patchLoader returns the loader with its boot information table (mkisofs(8), "EL TORITO BOOT INFORMATION TABLE").
func patchLoader(program []byte, at uint32) []byte {
	le := binary.LittleEndian
	out := append([]byte(nil), program...)
	out = append(out, make([]byte, -len(out)&3)...)
	le.PutUint32(out[8:], volumeAt)
	le.PutUint32(out[12:], at)
	le.PutUint32(out[16:], uint32(len(program)))
	var sum uint32
	for i := loaderLen; i < len(out); i += 4 {
		sum += le.Uint32(out[i:])
	}
	le.PutUint32(out[20:], sum)
	clear(out[24:loaderLen])
	return out
}

// head is what comes before the files.
func head(files []file, efiAt, total uint32, efi bool) []byte {
	out := make([]byte, (filesAt-volumeAt)*block)
	at := func(n int) []byte { return out[(n-volumeAt)*block : (n-volumeAt+1)*block] }
	putVolume(at(volumeAt), total)
	boot := at(bootAt)
	copy(boot, "\x00CD001\x01EL TORITO SPECIFICATION")
	binary.LittleEndian.PutUint32(boot[71:], catalogAt)
	copy(at(endAt), "\xffCD001\x01")
	copy(at(tableAt), []byte{1, 0, rootAt, 0, 0, 0, 1, 0, 0, 0})
	copy(at(tableBigAt), []byte{1, 0, 0, 0, 0, rootAt, 0, 1, 0, 0})
	putRoot(at(rootAt), files)
	putCatalog(at(catalogAt), files, efiAt, efi)
	return out
}

// both writes a number in both orders of bytes (ECMA-119, 7.3.3), and both16 a short one (7.2.3).
func both(at []byte, n uint32) {
	binary.LittleEndian.PutUint32(at, n)
	binary.BigEndian.PutUint32(at[4:], n)
}

func both16(at []byte, n uint16) {
	binary.LittleEndian.PutUint16(at, n)
	binary.BigEndian.PutUint16(at[2:], n)
}

// putVolume writes the primary volume descriptor (ECMA-119, 8.4).
func putVolume(at []byte, total uint32) {
	copy(at, "\x01CD001\x01")
	for _, text := range []struct {
		from, to int
		is       string
	}{{8, 40, ""}, {40, 72, "INGOT"}, {190, 813, ""}} {
		copy(at[text.from:text.to], text.is+strings.Repeat(" ", text.to-text.from-len(text.is)))
	}
	both(at[80:], total)
	both16(at[120:], 1)
	both16(at[124:], 1)
	both16(at[128:], block)
	both(at[132:], tableLen)
	binary.LittleEndian.PutUint32(at[140:], tableAt)
	binary.BigEndian.PutUint32(at[148:], tableBigAt)
	putRecord(at[156:], "\x00", rootAt, block, true)
	for _, date := range []int{813, 830, 847, 864} {
		copy(at[date:], strings.Repeat("0", 16)) // not said
	}
	at[881] = 1
}

func putRoot(at []byte, files []file) {
	n := putRecord(at, "\x00", rootAt, block, true)
	n += putRecord(at[n:], "\x01", rootAt, block, true)
	for _, f := range files {
		n += putRecord(at[n:], f.name, f.at, uint32(f.part.size()), false)
	}
}

// putRecord writes a directory record (ECMA-119, 9.1) and returns its length.
func putRecord(at []byte, name string, block, size uint32, dir bool) int {
	length := 33 + len(name) + (1 - len(name)%2)
	at[0] = byte(length)
	both(at[2:], block)
	both(at[10:], size)
	copy(at[18:], []byte{80, 1, 1}) // 1980
	if dir {
		at[25] = 2
	}
	both16(at[28:], 1)
	at[32] = byte(len(name))
	copy(at[33:], name)
	return length
}

// putCatalog writes the boot catalogue: what a BIOS loads first, and then what UEFI takes.
func putCatalog(at []byte, files []file, efiAt uint32, efi bool) {
	le := binary.LittleEndian
	at[0], at[30], at[31] = 1, 0x55, 0xaa
	bios := uint32(0)
	for _, f := range files {
		if f.name == loaderName {
			bios = f.at
		}
	}
	if bios == 0 {
		at[1] = platformEFI
	}
	var sum uint16
	for i := 0; i < 32; i += 2 {
		sum += le.Uint16(at[i:])
	}
	le.PutUint16(at[28:], -sum)
	entry := func(at []byte, blocks uint16, from uint32) {
		at[0] = 0x88 // bootable, without emulation
		le.PutUint16(at[6:], blocks)
		le.PutUint32(at[8:], from)
	}
	// A count of 0 means up to the end of the volume (UEFI 2.10, 13.3.2.1), which no 16 bits could say.
	switch {
	case bios == 0:
		entry(at[32:], 0, efiAt)
	case efi:
		entry(at[32:], loaderBlocks, bios)
		at[64], at[65], at[66] = 0x91, platformEFI, 1
		entry(at[96:], 0, efiAt)
	default:
		entry(at[32:], loaderBlocks, bios)
	}
}
