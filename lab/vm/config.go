package vm

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	qemuBinary = "qemu-system-x86_64"
	ovmfCode   = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	ovmfVars   = "/usr/share/OVMF/OVMF_VARS_4M.fd"

	// DefaultCmdline is the kernel's command line: the console, a reboot 5 s after a panic, and no doubt about a timer
	// that is late because the emulation is. It carries no secrets, because anybody on the machine can read it.
	DefaultCmdline = "console=ttyS0 quiet panic=5 no_timer_check"

	defaultMemoryMB = 256
)

// Firmware is how a machine starts.
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
	// Forward are TCP ports of the guest that the host can reach; VM.Forwarded returns where.
	Forward []int
	// Tap is the network device that the machine's card is plugged into instead of QEMU's user network.
	Tap string
	// CardROM keeps the boot ROM of the network card (iPXE) with UEFI, where the firmware has a driver of its own.
	// With BIOS the ROM is what boots from the network.
	CardROM bool
	// Disks come after StateDisk and ExtraDisks.
	Disks []Disk
	// NetworkFirst is the order of the first boot; disks go before the network otherwise. The order changes with
	// SetNetworkFirst, from the next reset on.
	NetworkFirst bool
	// CD is an image in a CD drive at a USB port; empty means no drive. The firmware tries it first with CDFirst, and last
	// without.
	CD      string
	CDFirst bool
	// FirmwareSettings are fw_cfg files, such as opt/org.tianocore/IPv4PXESupport.
	FirmwareSettings map[string]string
	// Console is one end of a socket pair for the first serial port, in place of SerialFile. Start closes it.
	Console *os.File
	// TPM adds a TPM 2.0 to the machine, whose state is in the folder tpm of Dir: another folder is another TPM.
	TPM bool
	// tpmDescriptor is QEMU's number of the TPM's control channel.
	tpmDescriptor int
	// Launcher goes before QEMU's own arguments: a program that runs another one, such as nsenter. It must replace
	// itself with it.
	Launcher []string
}

// Disk is a disk with its own serial number.
type Disk struct {
	// Path is an image: qcow2 if named so, else raw.
	Path   string
	Serial string
	// WriteLimit is in bytes a second; 0 means none.
	WriteLimit int64
	// BadSector, if positive, is a sector of 512 bytes that can't be written: such a write ends with EIO.
	BadSector int64
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
	if c.Tap != "" && c.Forward != nil {
		return c, errors.New("a machine on a tap has no forwarded ports")
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

// Identity returns the configuration with the values that are derived from the name.
func (c Config) Identity() Config {
	c.setDefaults()
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
