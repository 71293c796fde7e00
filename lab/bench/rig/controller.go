package rig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"

	"google.golang.org/grpc"

	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/process"
)

// Controller is one controller, at addresses that stay.
type Controller struct {
	*process.Logged
	// Frontpage, Fleet and HTTP are the addresses of its listeners.
	Frontpage, Fleet, HTTP string
	// REST is where REST and the console are; empty where they are off.
	REST string

	dir string
}

// newController writes the configuration: the defaults, but for where things are and what the rig sets.
func (r *Rig) newController(i int) (*Controller, error) {
	name := fmt.Sprintf("controller-%d", i)
	c := &Controller{dir: r.Path(name)}
	c.Logged = r.logged(name, filepath.Join(r.Bin, "ingot-controller"), "run", "--config", c.dir+".yaml")
	if r.Profile != "" && i == 0 {
		c.Logged = r.logged(name, "/proc/self/exe", ProfiledVerb, c.dir+".yaml", r.Profile)
	}
	var address [5]string
	for j := range address {
		port, err := r.freePort()
		if err != nil {
			return nil, err
		}
		address[j] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	c.Frontpage, c.Fleet, c.HTTP = address[0], address[1], address[3]
	if r.REST {
		c.REST = address[4]
	}
	if i > 0 {
		if err := r.share(c.dir); err != nil {
			return nil, fmt.Errorf("share keys: %w", err)
		}
	}
	text := fmt.Sprintf(`listen: {frontpage: %q, fleet: %q, enrolment: %q, http: %q, rest: %q}
data_dir: %q
images_dir: %q
database: {url: %q}
tls: {names: [localhost, 127.0.0.1]}
advertise: {fleet: [%q], enrolment: [%q]}
tokens_file: %q
%s`, c.Frontpage, c.Fleet, address[2], c.HTTP, c.REST, c.dir, r.Path("images"), r.URL, c.Fleet, address[2], r.Path("tokens"),
		r.Settings)
	return c, os.WriteFile(c.dir+".yaml", []byte(text), 0o600)
}

// freePort finds one below those that the kernel takes for outgoing connections (ip_local_port_range): a controller
// that is started again must find its own free.
func (r *Rig) freePort() (int, error) {
	for port := 20000; port < 32000; port++ {
		if r.taken[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		r.taken[port] = true
		return port, l.Close()
	}
	return 0, errors.New("no port is free")
}

// share copies the keys of the first controller to a further one.
func (r *Rig) share(dir string) error {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	first := r.Controllers[0].dir
	cp := exec.Command("cp", "-a", filepath.Join(first, "ca"), filepath.Join(first, "secrets"), dir) // with their modes
	if out, err := cp.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Start starts the controller and waits until it is ready.
func (c *Controller) Start(ctx context.Context) error {
	if err := c.Logged.Start(); err != nil {
		return err
	}
	return c.Await(ctx, "the controller is ready", func() bool { return process.Ready(ctx, c.HTTP) })
}

// Dial connects a client that takes large pages.
func (c *Controller) Dial(token string) (*grpc.ClientConn, error) {
	return client.Dial(client.Target{Server: c.Frontpage, Token: token, CAFile: c.CAFile()},
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
}

// Transport returns a transport of HTTP/2 that trusts the controller.
func (c *Controller) Transport() (*http.Transport, error) {
	pem, err := os.ReadFile(c.CAFile())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, ForceAttemptHTTP2: true,
	}, nil
}

// CAFile is the certificate that clients trust.
func (c *Controller) CAFile() string { return filepath.Join(c.dir, "ca.pem") }

// ProfiledVerb is the first argument of this program where it runs as a controller.
const ProfiledVerb = "controller"

// RunProfiled runs a controller until ctx ends. SIGUSR1 begins a CPU profile, and ends it the next time.
func RunProfiled(ctx context.Context, configFile, profile string) error {
	cfg, err := config.Load(configFile, nil)
	if err != nil {
		return err
	}
	ctl, err := controller.New(ctx, *cfg, controller.Options{Logger: slog.Default(), Version: "bench"})
	if err != nil {
		return err
	}
	f, err := os.Create(profile)
	if err != nil {
		return err
	}
	defer f.Close()
	toggle := make(chan os.Signal, 2)
	signal.Notify(toggle, syscall.SIGUSR1)
	task.Background("profile", func() {
		<-toggle
		if err := pprof.StartCPUProfile(f); err == nil {
			<-toggle
			pprof.StopCPUProfile()
		}
	})
	return ctl.Run(ctx)
}
