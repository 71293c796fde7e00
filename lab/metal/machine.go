package metal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/chassis"
	"github.com/ingot-metal/ingot/lab/vm"
)

// Protocol is how a machine's BMC is spoken to.
type Protocol string

// Protocols. Every machine has both; the controller has one.
const (
	Redfish Protocol = "redfish"
	IPMI    Protocol = "ipmi"
	NoBMC   Protocol = "none"
)

// MachineConfig describes a machine.
type MachineConfig struct {
	Name     string
	Firmware vm.Firmware
	BMC      Protocol
	// Disks: one empty disk of 2 GiB when nil.
	Disks []chassis.Disk
	// NetworkFirst and NoPXE: see chassis.Config.
	NetworkFirst, NoPXE bool

	MemoryMB int
	// InstallDisk, InstallMirror and DataDisks: see pb.MachineSpec.
	InstallDisk, InstallMirror string
	DataDisks                  []string
	// TPM adds a TPM 2.0 to the machine.
	TPM bool
	// TwinOf names a machine whose MAC address, UUID and serial number this one has too. Its disks and its TPM are its
	// own.
	TwinOf string
	// Unknown leaves the machine out of the inventory.
	Unknown bool
	// CredentialsRef names the BMC's credentials at the controller: CredentialsRef when empty.
	CredentialsRef string
	// Shape is what its Redfish service is like.
	Shape bmc.Shape
	// Media: it comes into the installer by virtual media, with an address of its own.
	Media bool
}

// Machine is a computer in the lab, powered off with empty disks at first.
type Machine struct {
	*chassis.Chassis
	cfg MachineConfig
	// Port is the device of its network card at the switch.
	Port    string
	Redfish *bmc.Redfish
	IPMI    *bmc.IPMI
	slot    int
}

// DiskBytes is the size of a machine's disk unless its configuration has another.
const DiskBytes = 2 << 30

// AddMachine builds a machine into the rack and registers it with the lab's controller, if there is one.
func (l *Lab) AddMachine(ctx context.Context, cfg MachineConfig) (*Machine, error) {
	if cfg.Disks == nil {
		cfg.Disks = []chassis.Disk{{Serial: cfg.Name + "-d0", Bytes: DiskBytes}}
	}
	l.mu.Lock()
	slot := len(l.machines) + 1
	m := &Machine{cfg: cfg, slot: slot}
	l.machines = append(l.machines, m)
	l.mu.Unlock()
	if err := l.build(ctx, m, slot); err != nil {
		return nil, fmt.Errorf("build machine %s: %w", cfg.Name, err)
	}
	if cfg.Unknown || l.cfg.Bare {
		return m, nil
	}
	if _, err := l.client.Machines.RegisterMachine(ctx, &pb.RegisterMachineRequest{Machine: m.record()}); err != nil {
		return nil, fmt.Errorf("register machine %s: %w", cfg.Name, err)
	}
	return m, nil
}

// build makes chassis and BMC.
func (l *Lab) build(ctx context.Context, m *Machine, slot int) (err error) {
	m.Port = fmt.Sprintf("tap%d", slot)
	if err := l.sw.Tap(m.Port); err != nil {
		return err
	}
	m.Chassis, err = chassis.New(chassis.Config{
		Name: cmp.Or(m.cfg.TwinOf, m.cfg.Name), Dir: l.path("machines", m.cfg.Name), Firmware: m.cfg.Firmware, Tap: m.Port,
		Launcher: l.rack.Prefix(),
		Disks:    m.cfg.Disks, MemoryMB: m.cfg.MemoryMB, NetworkFirst: m.cfg.NetworkFirst,
		NoPXE: m.cfg.NoPXE, TPM: m.cfg.TPM,
	})
	if err != nil {
		return err
	}
	return l.addBMC(ctx, m, netip.AddrFrom4([4]byte{198, 51, 100, byte(slot)}))
}

const (
	redfishPort = 443
	ipmiPort    = 623
)

func (l *Lab) addBMC(ctx context.Context, m *Machine, address netip.Addr) error {
	if m.cfg.BMC == NoBMC {
		return nil
	}
	if err := l.ns.Address("lo", netip.PrefixFrom(address, address.BitLen())); err != nil {
		return err
	}
	listener, err := l.ns.Listen(netip.AddrPortFrom(address, redfishPort).String())
	if err != nil {
		return err
	}
	m.Redfish, err = bmc.StartRedfish(ctx, bmc.RedfishConfig{
		Chassis: m.Chassis, Listener: listener, User: Username, Password: Password, Shape: m.cfg.Shape,
		Dial: l.ns.Dial, MediaDir: m.Dir(),
	})
	if err != nil {
		return err
	}
	dir := filepath.Join(m.Dir(), "bmc")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	serial, err := l.ns.Listen("127.0.0.1:0") // where the simulator finds the serial port
	if err != nil {
		return err
	}
	m.IPMI, err = bmc.StartIPMI(ctx, bmc.IPMIConfig{
		Chassis: m.Chassis, Dir: dir, Addr: netip.AddrPortFrom(address, ipmiPort), User: Username, Password: Password,
		Wrap: l.ns.Prefix(), Console: serial,
	})
	if err != nil {
		return err
	}
	return l.awaitIPMI(ctx, m.IPMI.Addr())
}

const ipmiPatience = 10 * time.Second

// awaitIPMI pings until there is an answer (RMCP presence, ASF 2.0, 3.2.4).
func (l *Lab) awaitIPMI(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, ipmiPatience)
	defer cancel()
	var conn net.Conn
	err := l.ns.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "udp4", address)
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	answer := make([]byte, 64)
	for ctx.Err() == nil {
		if _, err := conn.Write([]byte{6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x80, 1, 0, 0}); err == nil {
			if err := conn.SetReadDeadline(clock.Real().Now().Add(50 * time.Millisecond)); err != nil {
				return err
			}
			if n, err := conn.Read(answer); err == nil && n >= 12 {
				return nil
			}
		}
		<-clock.Real().After(20 * time.Millisecond)
	}
	return errors.New("the IPMI simulator does not answer")
}

// record is the machine's record at the controller.
func (m *Machine) record() *pb.Machine {
	about := m.About()
	spec := &pb.MachineSpec{
		MacAddresses: about.MACs, Serial: about.Serial, Site: SiteName, InstallDisk: m.cfg.InstallDisk,
		InstallMirror: m.cfg.InstallMirror, DataDisks: m.cfg.DataDisks,
	}
	if m.cfg.Media {
		spec.InstallPath, spec.InstallAddress = "media", m.InstallAddress()
	}
	if m.cfg.BMC != NoBMC {
		spec.BmcEndpoint, spec.BmcCredentialsRef = m.Endpoint(), cmp.Or(m.cfg.CredentialsRef, CredentialsRef)
	}
	return &pb.Machine{MachineId: m.cfg.Name, Spec: spec,
		Labels: map[string]string{"kind": "qemu", "firmware": string(m.cfg.Firmware)}}
}

// InstallAddress is the machine's own, where there is no DHCP server.
func (m *Machine) InstallAddress() string { return fmt.Sprintf("10.77.0.%d/%d", 10+m.slot, prefixBits) }

// Endpoint is the BMC's address at the controller.
func (m *Machine) Endpoint() string {
	if m.cfg.BMC == IPMI {
		return m.IPMI.Endpoint()
	}
	return m.Redfish.Endpoint()
}

// Name is also its id.
func (m *Machine) Name() string { return m.cfg.Name }

// close closes the BMCs first, so that the machine is not switched on again.
func (m *Machine) close() error {
	var errs []error
	if m.Redfish != nil {
		errs = append(errs, m.Redfish.Close())
	}
	if m.IPMI != nil {
		errs = append(errs, m.IPMI.Close())
	}
	if m.Chassis != nil {
		errs = append(errs, m.Chassis.Close())
	}
	return errors.Join(errs...)
}

// Machines are those of the lab, in the order of their slots.
func (l *Lab) Machines() []*Machine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*Machine(nil), l.machines...)
}

// Machine finds one by its name.
func (l *Lab) Machine(name string) (*Machine, error) {
	for _, m := range l.Machines() {
		if m.cfg.Name == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("there is no machine %q here", name)
}
