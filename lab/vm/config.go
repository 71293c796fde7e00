package vm

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	qemuBinary = "qemu-system-x86_64"
	ovmfCode   = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	ovmfVars   = "/usr/share/OVMF/OVMF_VARS_4M.fd"

	// DefaultCmdline is the kernel's command line: the console, and a reboot 5 s after a panic. It carries no
	// secrets, because anybody on the machine can read it.
	DefaultCmdline = "console=ttyS0 quiet panic=5"

	defaultMemoryMB = 256
)

// Firmware says how a machine starts.
type Firmware string

const (
	// Direct loads the kernel without a boot loader or network ROM. It is the quickest.
	Direct Firmware = "direct"
	// BIOS boots through SeaBIOS from disk or network, or the kernel if one is given.
	BIOS Firmware = "bios"
	// UEFI boots through OVMF, with variables that last. A kernel that is given goes before any boot entry,
	// BootNext included.
	UEFI Firmware = "uefi"
)

// Config describes a machine.
type Config struct {
	// Name is shown by QEMU; MAC, Serial and UUID are derived from it when they are empty.
	Name string
	// Dir holds the machine's console, sockets and firmware variables. Its path must be short (a Unix socket's
	// path has at most 107 bytes).
	Dir string
	// Kernel and Initrd are paths; both are needed for Direct.
	Kernel, Initrd string
	// Cmdline is DefaultCmdline when empty.
	Cmdline string
	// StateDisk and ExtraDisks are images: qcow2 if named so, else raw. They are the guest's vda, vdb and so on.
	StateDisk  string
	ExtraDisks []string
	// MemoryMB is in MiB; 256 when 0.
	MemoryMB int
	MAC      string
	// Serial and UUID are what the guest's DMI tables say (SMBIOS type 1).
	Serial, UUID string
	// Firmware is Direct when empty.
	Firmware Firmware
	// Forward are TCP ports of the guest that the host can reach; VM.Forwarded says where.
	Forward []int
}

// complete checks cfg and fills in what may be left out.
func (c Config) complete() (Config, error) {
	if c.Name == "" || c.Dir == "" {
		return c, errors.New("machine needs a name and a directory")
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return c, fmt.Errorf("find machine directory: %w", err)
	}
	if n := len(filepath.Join(c.Dir, ctlSocket)); n > 107 {
		return c, fmt.Errorf("directory %s is too long for a Unix socket in it (%d bytes)", c.Dir, n)
	}
	c.setDefaults()
	switch c.Firmware {
	case Direct, BIOS, UEFI:
	default:
		return c, fmt.Errorf("unknown firmware %q", c.Firmware)
	}
	if c.Firmware == Direct && (c.Kernel == "" || c.Initrd == "") {
		return c, errors.New("direct boot needs a kernel and an initrd")
	}
	return c, Available(c.Firmware)
}

// setDefaults derives identities from the name, so that a machine keeps them from one start to the next.
func (c *Config) setDefaults() {
	id := sha256.Sum256([]byte(c.Name))
	id[6] = id[6]&0x0f | 0x80 // UUID version 8 and variant (RFC 9562): custom
	id[8] = id[8]&0x3f | 0x80
	setDefault(&c.UUID, fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16]))
	setDefault(&c.MAC, fmt.Sprintf("52:54:00:%02x:%02x:%02x", id[0], id[1], id[2]))
	setDefault(&c.Serial, c.Name)
	setDefault(&c.Cmdline, DefaultCmdline)
	setDefault(&c.Firmware, Direct)
	setDefault(&c.MemoryMB, defaultMemoryMB)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// arguments is QEMU's command line. TCG is asked for outright, because a KVM device that is present may still
// not work; the processor flags and the random number device keep the guest from waiting for entropy. The
// sockets are file descriptors 3 and 4.
func arguments(c Config) []string {
	args := []string{
		"-name", escape(c.Name), "-no-user-config", "-nodefaults", "-display", "none", "-S",
		"-machine", "q35,graphics=off", "-accel", "tcg",
		"-cpu", "qemu64,+rdrand,+ssse3,+sse4.1,+sse4.2", "-smp", "1", "-m", strconv.Itoa(c.MemoryMB),
		"-uuid", c.UUID,
		"-smbios", "type=1,manufacturer=Ingot,product=Laboratory machine,serial=" + escape(c.Serial) + ",uuid=" + c.UUID,
		"-chardev", "file,id=serial,append=on,path=" + escape(filepath.Join(c.Dir, SerialFile)), "-serial", "chardev:serial",
		"-chardev", "socket,id=qmp,fd=3,server=on,wait=off", "-mon", "chardev=qmp,mode=control",
		"-chardev", "socket,id=control,fd=4,server=on,wait=off", "-mon", "chardev=control,mode=control",
		"-device", "virtio-rng-pci",
		"-netdev", "user,id=net0" + forwards(c), "-device", nic(c),
	}
	args = append(args, firmwareArguments(c)...)
	if c.Kernel != "" {
		args = append(args, "-kernel", c.Kernel, "-append", c.Cmdline)
	}
	if c.Initrd != "" {
		args = append(args, "-initrd", c.Initrd)
	}
	return append(args, diskArguments(c)...)
}

// nic leaves out the boot ROM where nothing can boot from it; loading it costs time.
func nic(c Config) string {
	device := "virtio-net-pci,netdev=net0,mac=" + c.MAC
	if c.Firmware == Direct {
		device += ",romfile="
	}
	return device
}

func firmwareArguments(c Config) []string {
	if c.Firmware != UEFI {
		return nil
	}
	vars := escape(filepath.Join(c.Dir, varsFile))
	return []string{
		"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=" + ovmfCode,
		"-drive", "if=pflash,unit=1,format=raw,file=" + vars,
	}
}

func diskArguments(c Config) []string {
	disks := c.ExtraDisks
	if c.StateDisk != "" {
		disks = append([]string{c.StateDisk}, disks...)
	}
	var args []string
	for i, path := range disks {
		id := fmt.Sprintf("disk%d", i)
		args = append(args,
			"-drive", fmt.Sprintf("if=none,id=%s,format=%s,file=%s", id, diskFormat(path), escape(path)),
			"-device", fmt.Sprintf("virtio-blk-pci,drive=%s,serial=%s", id, id))
	}
	return args
}

func diskFormat(path string) string {
	if filepath.Ext(path) == ".qcow2" {
		return "qcow2"
	}
	return "raw"
}

// escape doubles commas, which end a value in QEMU's options.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }
