package pid1

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/imagelayout"
)

const (
	// StateDir is where the file system labelled imagelayout.StateLabel is mounted.
	StateDir = "/var/lib/ingot"
	// NetworkFile, in StateDir, is a JSON Network. Without it ParamNet applies.
	NetworkFile = "network.json"

	// childEnv marks the process that process 1 starts for the real work.
	childEnv = "INGOT_PID1_CHILD"

	diskTimeout    = 20 * time.Second
	networkTimeout = 10 * time.Second
	leaseTimeout   = time.Minute
	pollInterval   = 20 * time.Millisecond
	restartDelay   = 3 * time.Second
	// stopGrace is how long the child may take to end by itself after the power button.
	stopGrace = 10 * time.Second
)

// System is a machine whose userland is this binary.
type System struct {
	stateDir  string
	installer *Installer
}

// IsInit reports whether this process is process 1 of an image made for this package, or the child that does its
// work. It is false for process 1 of a container.
func IsInit() bool {
	if os.Getpid() == 1 {
		_, err := os.Stat(imagelayout.ModuleList)
		return err == nil
	}
	return isChild()
}

func isChild() bool {
	return os.Getenv(childEnv) != "" && os.Getppid() == 1
}

// Setup makes the machine usable; doc.go has the steps. In the child there is nothing left to do. It fails when ctx
// ends, and when the disk or the network interface doesn't appear in time.
func Setup(ctx context.Context, log *slog.Logger) (*System, error) {
	sys := &System{stateDir: StateDir}
	if isChild() {
		var err error
		sys.installer, err = readInstaller(installerFile)
		return sys, err
	}
	if err := mountKernel(); err != nil {
		return nil, err
	}
	if err := loadModules(log); err != nil {
		return nil, err
	}
	if err := mountFirmwareVariables(); err != nil {
		return nil, err
	}
	b, err := readBootLine("/proc/cmdline")
	if err != nil {
		return nil, err
	}
	if b.role == RoleInstaller {
		if b.media, err = readMedia("/"); err != nil {
			return nil, err
		}
	}
	device, err := mountStateFor(ctx, log, b, sys.stateDir)
	if err != nil {
		return nil, err
	}
	if err := persistEtc(sys.stateDir, "/etc"); err != nil {
		return nil, err
	}
	if b.role != RoleInstaller { // which has no /etc of its own
		if err := loadFirewall("/proc/self/exe"); err != nil {
			log.Error("the packet filter of the last commit is not loaded", "error", err)
		}
	}
	c, err := setupNetwork(ctx, log, sys.stateDir, "/etc", b)
	if err != nil {
		return nil, fmt.Errorf("set up network: %w", err)
	}
	log.Info("machine is up", "state_device", device, "hostname", c.name, "address", c.address.String())
	return sys, sys.handOver(b, c)
}

// mountStateFor mounts the state directory, for an installer in memory: the site keeps an installer's durable state.
func mountStateFor(ctx context.Context, log *slog.Logger, b bootLine, dir string) (device string, err error) {
	if b.role == RoleInstaller {
		return "none", mount{"tmpfs", dir, "tmpfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "mode=0700"}.do()
	}
	return mountState(ctx, log, dir)
}

// handOver leaves what the child must know.
func (s *System) handOver(b bootLine, c connection) error {
	if b.role != RoleInstaller {
		return nil
	}
	a := c.link.Attrs()
	s.installer = &Installer{
		Site: b.site, Token: b.token, Interface: a.Name, MAC: a.HardwareAddr.String(), Address: c.address,
	}
	if b.media != nil {
		s.installer.MediaSecret = b.media.Secret
		if b.media.Address.IsValid() {
			s.installer.Static = &Network{MAC: s.installer.MAC, Address: b.media.Address, Gateway: b.media.Gateway,
				DNS: b.media.DNS}
		}
	}
	return s.installer.write(installerFile)
}

// StateDir is the directory that lasts over reboots.
func (s *System) StateDir() string { return s.stateDir }

// Run is Setup and then Supervise with fn. In process 1 it doesn't return: when Setup fails, it waits a little,
// so that the console can be read, and reboots.
func Run(ctx context.Context, log *slog.Logger, fn func(*System) error) error {
	sys, err := Setup(ctx, log)
	if err != nil {
		log.Error("machine cannot start; rebooting", "error", err)
		pause(restartDelay)
		return (&System{stateDir: StateDir}).Reboot()
	}
	return Supervise(func() error { return fn(sys) })
}
