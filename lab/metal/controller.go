package metal

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/ingot-metal/ingot/lab/network"
)

// Ports of the controller as the site and its machines reach it.
const (
	fleetPort     = "50052"
	enrolmentPort = "50053"
)

type listenAddresses struct{ frontpage, fleet, enrolment, http string }

// startController starts it with a Postgres of its own.
func (l *Lab) startController(ctx context.Context) error {
	if err := l.chooseAddresses(ctx); err != nil {
		return err
	}
	config := l.path("controller.yaml")
	if err := os.WriteFile(config, []byte(l.controllerConfig()), 0o600); err != nil {
		return err
	}
	l.controller = &process{name: "controller", log: l.path("logs", "controller.log"), make: func() *exec.Cmd {
		cmd := exec.Command(l.cfg.Controller, "run", "--dev", "--config", config)
		// Postgres refuses to be root, even of a user namespace.
		cmd.SysProcAttr = network.AsUser(&syscall.SysProcAttr{})
		return cmd
	}}
	for port, to := range map[string]string{fleetPort: l.listen.fleet, enrolmentPort: l.listen.enrolment} {
		inside, err := l.ns.Listen(net.JoinHostPort(ControllerAddress, port))
		if err != nil {
			return err
		}
		l.tunnels = append(l.tunnels, network.NewTunnel(inside, network.ToHost(to)))
	}
	if err := l.StartController(ctx); err != nil {
		return err
	}
	var err error
	l.client, err = newClient(l.listen.frontpage, l.path("controller", "ca.pem"), l.TokenFile())
	return err
}

// chooseAddresses takes free ports. Somebody else may take one before the controller does; then it doesn't start.
func (l *Lab) chooseAddresses(ctx context.Context) error {
	for _, a := range []*string{&l.listen.frontpage, &l.listen.fleet, &l.listen.enrolment, &l.listen.http} {
		want := "127.0.0.1:0"
		if a == &l.listen.frontpage && l.cfg.Frontpage != "" {
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
  fleet: ["%s:%s"]
  enrolment: ["%s:%s"]
agents:
  heartbeat_interval: 2s
`, l.path("controller"), l.listen.frontpage, l.listen.fleet, l.listen.enrolment, l.listen.http,
		ControllerAddress, ControllerAddress, fleetPort, ControllerAddress, enrolmentPort)
}

// StartController starts it, again after KillController, and returns when it is ready.
func (l *Lab) StartController(ctx context.Context) error {
	if err := l.controller.start(); err != nil {
		return err
	}
	return l.controller.await(ctx, "the controller is ready", func() bool { return l.ready(ctx) })
}

func (l *Lab) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.listen.http+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// KillController sends SIGKILL to it. Its database goes with it, and comes back with it.
func (l *Lab) KillController() error { return l.controller.kill() }

// Frontpage is the address for clients.
func (l *Lab) Frontpage() string { return l.listen.frontpage }

// CAFile and TokenFile are what a client needs besides.
func (l *Lab) CAFile() string { return l.path("controller", "ca.pem") }

// TokenFile holds an administrator's token.
func (l *Lab) TokenFile() string { return l.path("controller", "admin-token") }

// Logs gives everything that the processes have logged, by name.
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
