package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/lab/chaos/database"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/process"
	"github.com/ingot-metal/ingot/lab/relay"
)

// controllerProgram is one controller with the ways to it and from it.
type controllerProgram struct {
	program.Program
	c    *Trial
	dir  string
	http string
	// older reports whether it runs the program of an older version, on the schema of the others.
	older bool

	database, front, enrolment *relay.Relay
	fleet                      []*relay.Relay // one for each agent
	conn                       *grpc.ClientConn
}

// runsOlder reports whether the nth controller runs the older program. The first one never does: the schema is its own.
func (c *Trial) runsOlder(n int) bool {
	return c.o.Wide && c.o.Old != "" && c.wanted > 1 && n == c.wanted-1
}

func (c *Trial) newController(ctx context.Context, i int) (*controllerProgram, error) {
	name := fmt.Sprintf("controller-%d", i+1)
	p := &controllerProgram{c: c, dir: c.Path(name), older: c.runsOlder(i)}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	if err := p.openRelays(); err != nil {
		return nil, err
	}
	log, err := program.OpenLog(filepath.Join(p.dir, "log"))
	if err != nil {
		return nil, err
	}
	if p.Clock, err = c.newClock(name); err != nil {
		return nil, err
	}
	p.Program = program.Program{
		Name: name, Log: log, Ended: c.died, Env: c.environment(), Clock: p.Clock,
		Command: func() (string, []string) {
			path := filepath.Join(c.bin, "ingot-controller")
			if p.older {
				path = c.o.Old
			}
			return path, []string{
				"run", "--config", filepath.Join(p.dir, "controller.yaml"), "--addresses-file", p.addresses(),
			}
		},
		Before: p.forgetAddresses, Started: func() error { return p.ready(ctx) },
	}
	if err := p.configure(); err != nil {
		return nil, err
	}
	if err := p.Start(""); err != nil {
		return nil, fmt.Errorf("%w; see %s", err, log.Name())
	}
	if err := program.Until(ctx, settleTime, name+" to be ready", func() bool { return p.serves(ctx) }); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, p.dial()
}

// environment takes a protection away in every process of the cell.
func (c *Trial) environment() []string {
	if c.o.Planted == "" {
		return nil
	}
	return []string{"INGOT_PLANTED=" + c.o.Planted}
}

func (p *controllerProgram) openRelays() (err error) {
	socket, err := p.c.db.Socket()
	if err != nil {
		return err
	}
	if p.database, err = relay.OpenPostgres("unix", socket); err != nil {
		return err
	}
	for _, r := range []**relay.Relay{&p.front, &p.enrolment} {
		if *r, err = relay.Open("tcp", ""); err != nil {
			return err
		}
	}
	for range p.c.o.Agents {
		r, err := relay.Open("tcp", "")
		if err != nil {
			return err
		}
		p.fleet = append(p.fleet, r)
	}
	return nil
}

// configure shares keys and tokens between the controllers of a cell.
func (p *controllerProgram) configure() error {
	text := fmt.Sprintf(`
listen: {frontpage: "127.0.0.1:0", fleet: "127.0.0.1:0", enrolment: "127.0.0.1:0", http: "127.0.0.1:0"}
data_dir: %q
database: {url: %q, pool_size: 8}
tls: {names: ["127.0.0.1", localhost]}
advertise: {fleet: [%q], enrolment: [%q]}
tokens_file: %q
agents: {heartbeat_interval: 1s}
lease: 4s
workers: 16
log: {level: info, format: json}
webhooks: {allow_loopback: true, retry_base: 1s, retry_cap: 2s, max_attempts: 50}
`, p.c.Path("controllers"), database.URLBy(p.database.Address()), p.fleet[0].Address(), p.enrolment.Address(), p.c.Path("tokens"))
	return os.WriteFile(filepath.Join(p.dir, "controller.yaml"), []byte(text), 0o600)
}

func (p *controllerProgram) addresses() string { return filepath.Join(p.dir, "addresses") }

// forgetAddresses removes what the last one said of where it listened.
func (p *controllerProgram) forgetAddresses() error {
	if err := os.Remove(p.addresses()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// ready directs the relays to the new process as soon as it has written its addresses.
func (p *controllerProgram) ready(ctx context.Context) error {
	var a controller.Addresses
	err := program.Until(ctx, settleTime, p.Name, func() bool {
		b, err := os.ReadFile(p.addresses())
		return err == nil && json.Unmarshal(bytes.TrimSpace(b), &a) == nil && a.Frontpage != ""
	})
	if err != nil {
		return err
	}
	p.http = a.HTTP
	p.front.Point("tcp", a.Frontpage)
	p.enrolment.Point("tcp", a.Enrolment)
	for _, r := range p.fleet {
		r.Point("tcp", a.Fleet)
	}
	return nil
}

func (p *controllerProgram) serves(ctx context.Context) bool { return process.Ready(ctx, p.http) }

// dial connects the clients, who are impatient.
func (p *controllerProgram) dial() (err error) {
	p.conn, err = client.Dial(client.Target{Server: p.front.Address(), Token: p.c.token,
		CAFile: filepath.Join(p.c.Path("controllers"), "ca.pem")},
		grpc.WithDisableRetry(), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: time.Second, Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.3,
				MaxDelay: 200 * time.Millisecond},
		}))
	return err
}

func (p *controllerProgram) relays() []*relay.Relay {
	return append([]*relay.Relay{p.database, p.front, p.enrolment}, p.fleet...)
}

func (p *controllerProgram) close() error {
	var err error
	if p.conn != nil {
		err = p.conn.Close()
	}
	err = errors.Join(err, p.Program.Close())
	for _, r := range p.relays() {
		r.Close()
	}
	return err
}
