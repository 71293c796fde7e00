package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/process"
	"github.com/ingot-metal/ingot/lab/relay"
)

// controllerProgram is one controller with the relays of its connections.
type controllerProgram struct {
	program.Program
	f    *fleet
	dir  string
	http atomic.Value // the address of its HTTP listener, a string

	database, front, enrolment *relay.Relay
	fleet                      []*relay.Relay // one for each agent, the site's first
	conn                       *grpc.ClientConn
}

func (f *fleet) newController(ctx context.Context, i int) (*controllerProgram, error) {
	name := fmt.Sprintf("controller-%d", i+1)
	p := &controllerProgram{f: f, dir: f.path(name)}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	if err := p.openRelays(); err != nil {
		return nil, err
	}
	log, err := program.OpenLog(f.path(name + ".log"))
	if err != nil {
		return nil, err
	}
	clock, err := f.newClock(name)
	if err != nil {
		return nil, err
	}
	p.Program = program.Program{
		Name: name, Log: log, Ended: f.ended, Clock: clock,
		Command: func() (string, []string) {
			return filepath.Join(f.bin, "ingot-controller"), []string{
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
	if err := program.Until(ctx, f.o.rest, name+" to be ready", func() bool { return p.serves(ctx) }); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, p.dial()
}

func (p *controllerProgram) openRelays() (err error) {
	socket, err := p.f.database.socket()
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
	for range 1 + p.f.o.hosts {
		r, err := relay.Open("tcp", "")
		if err != nil {
			return err
		}
		p.fleet = append(p.fleet, r)
	}
	return nil
}

// heartbeat is how often agents report, in seconds.
const heartbeat = 2

// configure shares keys and tokens between the controllers.
func (p *controllerProgram) configure() error {
	text := fmt.Sprintf(`
listen: {frontpage: "127.0.0.1:0", fleet: "127.0.0.1:0", enrolment: "127.0.0.1:0", http: "127.0.0.1:0"}
data_dir: %q
database: {url: %q, pool_size: 16}
tls: {names: ["127.0.0.1", localhost]}
advertise: {fleet: [%q], enrolment: [%q]}
tokens_file: %q
agents: {heartbeat_interval: %ds}
lease: 6s
workers: 32
log: {level: info, format: json}
`, p.f.path("controllers"), urlBy(p.database.Address()), p.fleet[0].Address(), p.enrolment.Address(),
		p.f.path("tokens"), heartbeat)
	return os.WriteFile(filepath.Join(p.dir, "controller.yaml"), []byte(text), 0o600)
}

func (p *controllerProgram) addresses() string { return filepath.Join(p.dir, "addresses") }

// forgetAddresses removes the addresses of the process before.
func (p *controllerProgram) forgetAddresses() error {
	if err := os.Remove(p.addresses()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// ready points the relays to the new process as soon as its addresses are known. One that ends before it listens,
// because its database is away, is started again by its supervisor, which calls this again.
func (p *controllerProgram) ready(ctx context.Context) error {
	pid := p.Pid()
	var a controller.Addresses
	err := program.Until(ctx, p.f.o.rest, p.Name, func() bool {
		b, err := os.ReadFile(p.addresses())
		return err == nil && json.Unmarshal(bytes.TrimSpace(b), &a) == nil && a.Frontpage != "" || p.Pid() != pid
	})
	if err != nil || a.Frontpage == "" {
		return err
	}
	p.http.Store(a.HTTP)
	p.front.Point("tcp", a.Frontpage)
	p.enrolment.Point("tcp", a.Enrolment)
	for _, r := range p.fleet {
		r.Point("tcp", a.Fleet)
	}
	return nil
}

func (p *controllerProgram) serves(ctx context.Context) bool {
	address, known := p.http.Load().(string)
	return known && process.Ready(ctx, address)
}

// dial opens the connection that all clients share. Calls fail at once while the controller is away.
func (p *controllerProgram) dial() (err error) {
	p.conn, err = client.Dial(client.Target{Server: p.front.Address(), Token: p.f.token,
		CAFile: filepath.Join(p.f.path("controllers"), "ca.pem")},
		grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: time.Second, Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.3,
				MaxDelay: 300 * time.Millisecond},
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
	for _, r := range p.relays() {
		r.Close()
	}
	return err
}

func (p *controllerProgram) machines() baremetalv1.MachineServiceClient {
	return baremetalv1.NewMachineServiceClient(p.conn)
}

func (p *controllerProgram) operations() baremetalv1.OperationServiceClient {
	return baremetalv1.NewOperationServiceClient(p.conn)
}

func (p *controllerProgram) runs() baremetalv1.RunServiceClient {
	return baremetalv1.NewRunServiceClient(p.conn)
}

func (p *controllerProgram) admin() baremetalv1.AdminServiceClient {
	return baremetalv1.NewAdminServiceClient(p.conn)
}
