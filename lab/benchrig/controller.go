package benchrig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/task"
)

// Controller is one controller, at addresses that stay.
type Controller struct {
	*Program
	// Frontpage, Fleet and HTTP are the addresses of its listeners.
	Frontpage, Fleet, HTTP string

	rig *Rig
	dir string
}

// newController writes the configuration: the defaults, but for where things are and what the rig sets.
func (r *Rig) newController(i int) (*Controller, error) {
	name := fmt.Sprintf("controller-%d", i)
	c := &Controller{rig: r, Program: &Program{Name: name}, dir: r.Path(name)}
	var address [4]string
	for j := range address {
		port, err := r.freePort()
		if err != nil {
			return nil, err
		}
		address[j] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	c.Frontpage, c.Fleet, c.HTTP = address[0], address[1], address[3]
	if i > 0 {
		if err := r.share(c.dir); err != nil {
			return nil, fmt.Errorf("share keys: %w", err)
		}
	}
	text := fmt.Sprintf(`listen: {frontpage: %q, fleet: %q, enrolment: %q, http: %q}
data_dir: %q
images_dir: %q
database: {url: %q}
tls: {names: [localhost, 127.0.0.1]}
advertise: {fleet: [%q], enrolment: [%q]}
tokens_file: %q
%s`, c.Frontpage, c.Fleet, address[2], c.HTTP, c.dir, r.Path("images"), r.URL, c.Fleet, address[2], r.Path("tokens"),
		r.Settings)
	return c, os.WriteFile(c.dir+".yaml", []byte(text), 0o600)
}

// freePort finds one below those that the kernel gives to outgoing connections (ip_local_port_range): a controller that
// is started again must find its own free.
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

// share gives a further controller the keys of the first.
func (r *Rig) share(dir string) error {
	for _, part := range []string{"ca", "secrets"} {
		to := filepath.Join(dir, part)
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		from := filepath.Join(r.Controllers[0].dir, part)
		if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil { // as private as they are
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

// Start starts the controller and waits until it is ready.
func (c *Controller) Start(ctx context.Context) (err error) {
	launch := c.rig.start
	if c.rig.InProcess {
		launch = func(name, _ string, _ ...string) (*Program, error) { return c.rig.startInProcess(ctx, name) }
	}
	p, err := launch(c.Name, "ingot-controller", "run", "--config", c.dir+".yaml")
	if err != nil {
		return err
	}
	c.Program = p
	return c.until(ctx, "the controller", c.ready)
}

func (c *Controller) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.HTTP+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // nothing of it is read
	return resp.StatusCode == http.StatusOK
}

// Dial connects a client that takes large pages.
func (c *Controller) Dial(token string) (*grpc.ClientConn, error) {
	return client.Dial(client.Target{Server: c.Frontpage, Token: token, CAFile: c.CAFile()},
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
}

// CAFile is the certificate that clients trust.
func (c *Controller) CAFile() string { return filepath.Join(c.dir, "ca.pem") }

// inProcess is a controller in this process.
type inProcess struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid once done is closed
}

func (r *Rig) startInProcess(ctx context.Context, name string) (*Program, error) {
	cfg, err := config.Load(r.Path(name+".yaml"), nil)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(r.Path(name + ".log"))
	if err != nil {
		return nil, err
	}
	ctl, err := controller.New(ctx, *cfg, controller.Options{Logger: slog.New(slog.DiscardHandler), Version: "bench"})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &inProcess{cancel: cancel, done: make(chan struct{})}
	task.Background("controller", func() {
		p.err = ctl.Run(runCtx)
		close(p.done)
	})
	return &Program{Name: name, Started: time.Now(), running: p, log: log}, nil
}

// Pid is this process's id.
func (p *inProcess) Pid() int { return os.Getpid() }

// Gone is closed when the controller has ended.
func (p *inProcess) Gone() <-chan struct{} { return p.done }

// Err is how it ended.
func (p *inProcess) Err() error { return p.err }

// Stop ends it and waits, however long that takes.
func (p *inProcess) Stop(time.Duration) error {
	p.cancel()
	<-p.done
	return p.err
}

// Kill is Stop: nothing dies alone in a process.
func (p *inProcess) Kill() error { return p.Stop(0) }
