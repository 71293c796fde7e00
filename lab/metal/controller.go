package metal

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/ingot-metal/ingot/lab/network"
	"github.com/ingot-metal/ingot/lab/process"
)

// Ports of the controller as the site and its machines reach it.
const (
	fleetPort     = "50052"
	enrolmentPort = "50053"
)

// Controller is how a controller is reached on this host's loopback: by clients and by agents.
type Controller struct {
	Frontpage, Fleet, Enrolment string
	CAFile, TokenFile           string
}

// findController joins one, or starts it with a Postgres of its own.
func (l *Lab) findController(ctx context.Context) error {
	if l.cfg.Join != nil {
		l.reach = *l.cfg.Join
	} else if err := l.ownController(ctx); err != nil {
		return err
	}
	for address, to := range map[string]string{FleetAddress: l.reach.Fleet, EnrolmentAddress: l.reach.Enrolment} {
		inside, err := l.ns.Listen(address)
		if err != nil {
			return err
		}
		l.tunnels = append(l.tunnels, network.NewTunnel(inside, network.ToHost(to)))
	}
	var err error
	l.client, err = newClient(l.reach)
	return err
}

func (l *Lab) ownController(ctx context.Context) error {
	l.reach.CAFile, l.reach.TokenFile = l.path("controller", "ca.pem"), l.path("controller", "admin-token")
	if err := l.chooseAddresses(ctx); err != nil {
		return err
	}
	config := l.path("controller.yaml")
	if err := os.WriteFile(config, []byte(l.controllerConfig()), 0o600); err != nil {
		return err
	}
	l.controller = &process.Logged{Name: "controller", Log: l.path("logs", "controller.log"), Command: func() *exec.Cmd {
		cmd := exec.Command(l.cfg.Controller, "run", "--dev", "--config", config)
		// Postgres refuses to be root, even of a user namespace.
		cmd.SysProcAttr = network.AsUser(&syscall.SysProcAttr{})
		return cmd
	}}
	return l.StartController(ctx)
}

// chooseAddresses takes free ports. Another program may take one before the controller does; then it doesn't start.
func (l *Lab) chooseAddresses(ctx context.Context) error {
	for _, a := range []*string{&l.reach.Frontpage, &l.reach.Fleet, &l.reach.Enrolment, &l.http} {
		want := "127.0.0.1:0"
		if a == &l.reach.Frontpage && l.cfg.Frontpage != "" {
			want = l.cfg.Frontpage
		}
		free, err := (&net.ListenConfig{}).Listen(ctx, "tcp", want)
		if err != nil {
			return err
		}
		defer free.Close() // all at once in the end, so that they differ
		*a = free.Addr().String()
	}
	return nil
}

func (l *Lab) controllerConfig() string {
	return fmt.Sprintf(`data_dir: %s
listen:
  frontpage: %s
  fleet: %s
  enrolment: %s
  http: %s
tls:
  names: [localhost, 127.0.0.1, %s]
advertise:
  fleet: ["%s"]
  enrolment: ["%s"]
agents:
  heartbeat_interval: 2s
installer_cmdline: %s
`, l.path("controller"), l.reach.Frontpage, l.reach.Fleet, l.reach.Enrolment, l.http,
		ControllerAddress, FleetAddress, EnrolmentAddress, consoleCmdline)
}

// StartController starts it, again after KillController, and returns when it is ready.
func (l *Lab) StartController(ctx context.Context) error {
	if err := l.controller.Start(); err != nil {
		return err
	}
	return l.controller.Await(ctx, "the controller is ready", func() bool { return process.Ready(ctx, l.http) })
}

// KillController sends SIGKILL to it. Its database goes with it, and comes back with it.
func (l *Lab) KillController() error { return l.controller.Kill() }

// Reach is how clients and agents on this host reach the controller.
func (l *Lab) Reach() Controller { return l.reach }

// Logs returns everything that the processes have logged, by name.
func (l *Lab) Logs() (map[string]string, error) {
	entries, err := os.ReadDir(l.path("logs"))
	if err != nil {
		return nil, err
	}
	logs := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(l.path("logs", e.Name()))
		if err != nil {
			return nil, err
		}
		logs[strings.TrimSuffix(e.Name(), ".log")] = string(text)
	}
	return logs, nil
}
