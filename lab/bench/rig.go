package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/client"
	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/embeddedpg"
)

// rig is the database and the controller.
type rig struct {
	o     options
	dir   string
	db    *embeddedpg.Postgres
	dbPid int
	token string

	controller child
	addresses  controller.Addresses
	conn       *grpc.ClientConn
}

func newRig(ctx context.Context, o options, dir string) (*rig, error) {
	g := &rig{o: o, dir: dir}
	var err error
	// The one of --dev, with its settings.
	g.db, err = embeddedpg.Open(ctx, embeddedpg.Config{
		// pgbench takes one for each client
		DataDir: dir, Logger: slog.New(slog.DiscardHandler), Connections: 100 + slices.Max(o.clients),
	})
	if err != nil {
		return nil, err
	}
	if g.dbPid, err = pidFromFile(filepath.Join(dir, "postgres", "data", "postmaster.pid")); err == nil {
		err = g.configure()
	}
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// pidFromFile reads the first line of a postmaster.pid.
func pidFromFile(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return strconv.Atoi(strings.TrimSpace(first))
}

func (g *rig) close() error { return g.db.Close() }

func (g *rig) path(name string) string { return filepath.Join(g.dir, name) }

// configure writes the controller's configuration: the defaults, but for where things are.
func (g *rig) configure() error {
	scope, err := auth.ParseScope("admin")
	if err != nil {
		return err
	}
	if g.token, err = auth.AddToken(g.path("tokens"), "bench", scope); err != nil {
		return err
	}
	text := fmt.Sprintf(
		`listen: {frontpage: "127.0.0.1:0", fleet: "127.0.0.1:0", enrolment: "127.0.0.1:0", http: "127.0.0.1:0"}
data_dir: %q
database: {url: %q}
tls: {names: [localhost, 127.0.0.1]}
tokens_file: %q
`, g.path("controller"), g.db.URL(), g.path("tokens"))
	return os.WriteFile(g.path("controller.yaml"), []byte(text), 0o600)
}

// startController starts it as a process of its own, and connects a client.
func (g *rig) startController(ctx context.Context) error {
	file := g.path("addresses.json")
	if err := os.RemoveAll(file); err != nil {
		return err
	}
	p, err := g.launch(ctx, file)
	if err != nil {
		return err
	}
	g.controller = p
	if err := p.until(ctx, "the controller", func() bool { return g.ready(ctx, file) }); err != nil {
		return errors.Join(err, p.stop())
	}
	g.conn, err = g.dial()
	if err != nil {
		return errors.Join(err, p.stop())
	}
	return nil
}

// launch starts the controller's process, or, for a profile, a controller in this one.
func (g *rig) launch(ctx context.Context, file string) (child, error) {
	if g.o.profile != "" {
		return startInProcess(ctx, g.path("controller.yaml"), file)
	}
	return startProcess(g.dir, "controller", filepath.Join(g.o.bin, "ingot-controller"),
		"run", "--config", g.path("controller.yaml"), "--addresses-file", file)
}

func (g *rig) ready(ctx context.Context, file string) bool {
	b, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(b, &g.addresses) != nil {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.addresses.HTTP+"/readyz", http.NoBody)
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

func (g *rig) dial() (*grpc.ClientConn, error) {
	return client.Dial(client.Target{Server: g.addresses.Frontpage, Token: g.token,
		CAFile: filepath.Join(g.path("controller"), "ca.pem")})
}

func (g *rig) stopController() error { return errors.Join(g.conn.Close(), g.controller.stop()) }

func (g *rig) machines() baremetalv1.MachineServiceClient {
	return baremetalv1.NewMachineServiceClient(g.conn)
}
