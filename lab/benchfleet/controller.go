package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/lab/measure"
	"github.com/ingot-metal/ingot/lab/process"
)

// controllerProcess is one controller, at addresses that stay.
type controllerProcess struct {
	b     *bench
	name  string
	dir   string
	front string
	fleet string
	http  string
	log   *os.File

	process *process.Process
	began   time.Time
}

var takenPorts = map[int]bool{}

// newController writes the configuration: the defaults, but for where things are. All share the CA of the first.
func (b *bench) newController(i int) (*controllerProcess, error) {
	name := fmt.Sprintf("controller-%d", i)
	c := &controllerProcess{b: b, name: name, dir: b.path(name)}
	var address [4]string
	for j := range address {
		port, err := freePort(takenPorts)
		if err != nil {
			return nil, err
		}
		address[j] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	c.front, c.fleet, c.http = address[0], address[1], address[3]
	if i > 0 {
		if err := b.share(c.dir); err != nil {
			return nil, err
		}
	}
	text := fmt.Sprintf(`listen: {frontpage: %q, fleet: %q, enrolment: %q, http: %q}
data_dir: %q
images_dir: %q
database: {url: %q}
tls: {names: [localhost, 127.0.0.1]}
advertise: {fleet: [%q], enrolment: [%q]}
tokens_file: %q
agents: {heartbeat_interval: %s}
log: {level: warn}
`, c.front, c.fleet, address[2], c.http, c.dir, b.path("images"), b.db.URL(), c.fleet, address[2], b.path("tokens"), b.heartbeat)
	return c, os.WriteFile(c.dir+".yaml", []byte(text), 0o600)
}

// share gives a further controller the keys of the first.
func (b *bench) share(dir string) error {
	first := b.controllers[0].dir
	for _, part := range []string{"ca", "secrets"} {
		if err := os.RemoveAll(filepath.Join(dir, part)); err != nil {
			return fmt.Errorf("share keys: %w", err)
		}
		if err := copyKeys(filepath.Join(dir, part), filepath.Join(first, part)); err != nil {
			return fmt.Errorf("share keys: %w", err)
		}
	}
	return nil
}

// copyKeys copies a directory of files that nobody else may read.
func copyKeys(to, from string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if e.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, b, 0o600)
	})
}

// start starts the process and waits until it is ready.
func (c *controllerProcess) start(ctx context.Context) (err error) {
	if c.log, err = os.OpenFile(c.dir+".log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	c.began = time.Now()
	c.process, err = process.Start(process.Config{
		Path: filepath.Join(c.b.o.bin, "ingot-controller"), Args: []string{"run", "--config", c.dir + ".yaml"}, Output: c.log,
	})
	if err != nil {
		return err
	}
	return c.until(ctx, "the controller", c.ready)
}

func (c *controllerProcess) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.http+"/readyz", http.NoBody)
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

// until polls for cond while the controller lives.
func (c *controllerProcess) until(ctx context.Context, what string, cond func(context.Context) bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond(ctx) {
		select {
		case <-tick.C:
		case <-c.process.Gone():
			return fmt.Errorf("wait for %s: %s ended: %w\n%s", what, c.name, c.process.Err(), c.tail())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w\n%s", what, ctx.Err(), c.tail())
		}
	}
	return nil
}

// tail is the end of the log.
func (c *controllerProcess) tail() string {
	b, err := os.ReadFile(c.dir + ".log")
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

func (c *controllerProcess) stop() error {
	if c.process == nil {
		return nil
	}
	select {
	case <-c.process.Gone():
		return errors.Join(fmt.Errorf("%s had ended by itself: %w\n%s", c.name, c.process.Err(), c.tail()), c.log.Close())
	default:
	}
	return errors.Join(c.process.Stop(time.Minute), c.log.Close())
}

// kill is kill -9.
func (c *controllerProcess) kill() error { return errors.Join(c.process.Kill(), c.log.Close()) }

func (c *controllerProcess) dial(token string) (*grpc.ClientConn, error) {
	return client.Dial(client.Target{Server: c.front, Token: token, CAFile: filepath.Join(c.dir, "ca.pem")})
}

func (c *controllerProcess) rss() (int64, error) { return measure.RSS(c.process.Pid()) }
