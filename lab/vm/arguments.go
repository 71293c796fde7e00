package vm

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// arguments returns QEMU's command line. TCG is asked for explicitly, because a KVM device that is present may still
// not work. The processor flags and the random number device keep the guest from waiting for entropy. The sockets are
// file descriptors 3 and 4, and 5 is the console if it is one.
func arguments(c Config) []string {
	args := []string{
		"-name", escape(c.Name), "-no-user-config", "-nodefaults", "-display", "none", "-S",
		"-machine", "q35,graphics=off", "-accel", "tcg,tb-size=" + translated,
		"-cpu", processor(c), "-smp", processors(c), "-m", strconv.Itoa(c.MemoryMB),
		"-uuid", c.UUID,
		"-smbios", "type=1,manufacturer=Ingot,product=Laboratory machine,serial=" + escape(c.Serial) + ",uuid=" + c.UUID,
		"-chardev", serial(c), "-serial", "chardev:serial",
		"-chardev", "socket,id=qmp,fd=3,server=on,wait=off", "-mon", "chardev=qmp,mode=control",
		"-chardev", "socket,id=control,fd=4,server=on,wait=off", "-mon", "chardev=control,mode=control",
		"-device", "virtio-rng-pci",
		"-netdev", netdev(c), "-device", nic(c),
	}
	args = append(args, firmwareArguments(c)...)
	args = append(args, tpmArguments(c)...)
	if c.Kernel != "" {
		args = append(args, "-kernel", c.Kernel, "-append", c.Cmdline)
	}
	if c.Initrd != "" {
		args = append(args, "-initrd", c.Initrd)
	}
	return slices.Concat(args, diskArguments(c), cdArguments(c))
}

const cdID, cdDrive = "cd0", "media0"

// cdArguments make the drive one that can be opened: usb-storage takes no empty one.
func cdArguments(c Config) []string {
	if c.CD == "" {
		return nil
	}
	return []string{
		"-drive", "if=none,id=" + cdDrive + ",media=cdrom,readonly=on,format=raw,file=" + escape(c.CD),
		"-device", "qemu-xhci,id=usb0", "-device", "usb-bot,id=bot0,bus=usb0.0",
		"-device", fmt.Sprintf("scsi-cd,id=%s,bus=bot0.0,drive=%s,bootindex=%d", cdID, cdDrive, cdIndex(c.CDFirst)),
	}
}

func cdIndex(first bool) int {
	if first {
		return 0
	}
	return 200
}

// translated is QEMU's room for translated code in MiB. With the default of a GiB no code is ever dropped. A kernel
// that is loaded over the code of the former system then waits up to ten seconds for the bookkeeping of its pages.
const translated = "64"

// processor is everything that QEMU emulates for machines that are installed: hashing a disk takes half the time with
// vector instructions. Those that boot a kernel by hand have the least, which starts a little sooner.
func processor(c Config) string {
	if c.Tap != "" {
		return "max"
	}
	return "qemu64,+rdrand,+ssse3,+sse4.1,+sse4.2"
}

// processors is two for machines that are installed: they hash while they write, and start services side by side.
func processors(c Config) string {
	if c.Tap != "" {
		return "2"
	}
	return "1"
}

func serial(c Config) string {
	if c.Console != nil {
		return "socket,id=serial,fd=5"
	}
	return "file,id=serial,append=on,path=" + escape(filepath.Join(c.Dir, SerialFile))
}

func netdev(c Config) string {
	if c.Tap != "" {
		return "tap,id=net0,script=no,downscript=no,ifname=" + c.Tap
	}
	return "user,id=net0" + forwards(c)
}

// nic leaves out the boot ROM where nothing can boot from it, since loading it costs time. It does so too where the
// firmware boots by itself. Only machines on a tap have a bootindex: those boot from disk and network in an order.
func nic(c Config) string {
	device := "virtio-net-pci,id=" + cardID + ",netdev=net0,mac=" + c.MAC
	if c.Firmware == Direct || c.Firmware == UEFI && c.Tap != "" && !c.CardROM {
		device += ",romfile="
	}
	if c.Tap != "" {
		device += fmt.Sprintf(",bootindex=%d", cardIndex(c.NetworkFirst))
	}
	return device
}

const cardID = "card0"

// cardIndex leaves room for the disks in between.
func cardIndex(first bool) int {
	if first {
		return 1
	}
	return 100
}

func diskIndex(i int) int { return 10 + i }

func firmwareArguments(c Config) []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(c.FirmwareSettings)) {
		args = append(args, "-fw_cfg", "name="+name+",string="+escape(c.FirmwareSettings[name]))
	}
	if c.Firmware != UEFI {
		return args
	}
	vars := escape(filepath.Join(c.Dir, varsFile))
	return append(args,
		"-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+ovmfCode,
		"-drive", "if=pflash,unit=1,format=raw,file="+vars,
	)
}

// tpmArguments are for swtpm (QEMU documentation, "The QEMU TPM emulator device").
func tpmArguments(c Config) []string {
	if !c.TPM {
		return nil
	}
	return []string{
		"-chardev", "socket,id=chrtpm,fd=" + strconv.Itoa(c.tpmDescriptor), "-tpmdev", "emulator,id=tpm0,chardev=chrtpm",
		"-device", "tpm-crb,tpmdev=tpm0",
	}
}

func diskArguments(c Config) []string {
	var args []string
	for i, d := range c.allDisks() {
		device := fmt.Sprintf("virtio-blk-pci,drive=%s,serial=%s", diskID(i), escape(d.Serial))
		if c.Tap != "" {
			device += fmt.Sprintf(",bootindex=%d", diskIndex(i))
		}
		args = append(args, "-drive", drive(i, d), "-device", device)
	}
	return args
}

func (c Config) allDisks() []Disk {
	var disks []Disk
	paths := c.ExtraDisks
	if c.StateDisk != "" {
		paths = append([]string{c.StateDisk}, paths...)
	}
	for i, path := range paths {
		disks = append(disks, Disk{Path: path, Serial: diskID(i)})
	}
	return append(disks, c.Disks...)
}

func diskID(i int) string { return fmt.Sprintf("disk%d", i) }

// drive puts a failing layer over the image where one is wanted: blkdebug's event "none" is there from the start, and
// its rule stays (qapi/block-core.json, BlkdebugInjectErrorOptions).
func drive(i int, d Disk) string {
	options := []string{"if=none", "id=" + diskID(i)}
	if d.BadSector > 0 {
		options = append(options, "driver=blkdebug", "inject-error.0.event=none", "inject-error.0.iotype=write",
			"inject-error.0.errno=5", "inject-error.0.once=off", fmt.Sprintf("inject-error.0.sector=%d", d.BadSector),
			"werror=report", "image.driver="+diskFormat(d.Path), "image.file.driver=file", "image.file.filename="+escape(d.Path))
	} else {
		options = append(options, "format="+diskFormat(d.Path), "file="+escape(d.Path), "discard=unmap")
	}
	if d.WriteLimit > 0 {
		options = append(options, fmt.Sprintf("throttling.bps-write=%d", d.WriteLimit))
	}
	return strings.Join(options, ",")
}

func diskFormat(path string) string {
	if filepath.Ext(path) == ".qcow2" {
		return "qcow2"
	}
	return "raw"
}

// escape doubles commas, which end a value in QEMU's options.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }
