package controller

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/catalog/image"
	"github.com/ingot-metal/ingot/controller/catalog/imagestore"
	"github.com/ingot-metal/ingot/controller/catalog/oci"
	"github.com/ingot-metal/ingot/controller/catalog/script"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/engine"
	"github.com/ingot-metal/ingot/controller/limit/ratelimit"
	"github.com/ingot-metal/ingot/controller/position"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/server"
	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/controller/signon"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/obs/metrics"
	"github.com/ingot-metal/ingot/internal/obs/traces"
	"github.com/ingot-metal/ingot/internal/task"
)

// Options are settings that the configuration file has no fields for.
type Options struct {
	Logger *slog.Logger
	// Clock is for tests that turn its hands; nil follows the database's.
	Clock clock.Clock
	// Version is shown to clients and agents.
	Version string
}

// Controller is one controller process.
type Controller struct {
	cfg config.Config
	log *slog.Logger
	// clock is steered by the database's, unless the options name one. ticks is monotonic.
	clock, ticks clock.Clock
	steered      *clock.Steered
	version      string
	id           string
	store        *store.Store
	blobs        blob.Store
	images       *image.Catalogue
	scripts      *script.Catalogue
	secrets      *secret.Box
	ca           *ca.Authority
	certs        *ca.ServerCerts
	tokens       *auth.Tokens
	signOn       *signon.Provider
	sessions     *session.Registry
	engine       *engine.Engine
	registry     *prometheus.Registry
	metrics      *metrics.Metrics
	traces       *traces.Tracer
	limiter      *ratelimit.Limiter
	listeners    server.Listeners
	servers      *server.Servers
	time         *timekeeper
	authority    *authorityFollower
	draining     context.Context
	drain        context.CancelFunc
	ready        readiness
	// started is closed once the database has answered and its schema is up to date.
	started chan struct{}
}

// New opens the listeners, the keys and the tokens. It does not wait for the database.
func New(ctx context.Context, cfg config.Config, o Options) (*Controller, error) {
	c := &Controller{cfg: cfg, log: o.Logger, clock: o.Clock, ticks: o.Clock, version: o.Version,
		id: ids.New(ids.Controller), sessions: session.NewRegistry(), started: make(chan struct{})}
	if o.Clock == nil {
		c.ticks = clock.Real()
		c.steered = clock.NewSteered(c.ticks)
		c.clock = c.steered
	}
	c.ready.set("starting")
	c.draining, c.drain = context.WithCancel(context.Background())
	steps := []func(context.Context) error{c.openListeners, c.openKeys, c.openTokens, c.openSecrets, c.openTraces,
		c.openStore, c.openSignOn, c.openImages, c.openEngine, c.openServers}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			c.listeners.Close()
			c.traces.Close()
			return nil, err
		}
	}
	return c, nil
}

func (c *Controller) openListeners(ctx context.Context) (err error) {
	c.listeners, err = server.Open(ctx, &c.cfg)
	return err
}

func (c *Controller) openKeys(ctx context.Context) error {
	// Others may pass through (the private database runs as another user), and read nothing: its files have mode 0600.
	if err := os.MkdirAll(c.cfg.DataDir, 0o711); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	var err error
	c.ca, err = ca.New(ca.Config{Dir: filepath.Join(c.cfg.DataDir, "ca"), From: c.cfg.KeysDir, Clock: c.clock})
	if err != nil {
		return fmt.Errorf("open the CA: %w", err)
	}
	if err := writeRoots(c.cfg.DataDir, c.ca); err != nil {
		return err
	}
	dns, ips := c.cfg.ServerNames()
	if c.certs, err = ca.NewServerCerts(ctx, c.ca, dns, ips); err != nil {
		return fmt.Errorf("make server certificate: %w", err)
	}
	return nil
}

func (c *Controller) openTokens(context.Context) (err error) {
	c.tokens, err = auth.OpenTokens(c.cfg.TokensFile, c.log)
	return err
}

func (c *Controller) openSecrets(context.Context) (err error) {
	made := c.cfg.SecretsKeyFile == "" && c.cfg.KeysDir == ""
	c.secrets, err = secret.OpenFile(c.cfg.SecretKeyPath(), made)
	return err
}

func (c *Controller) openTraces(context.Context) (err error) {
	c.traces, err = traces.New(c.cfg.Traces, traces.Service{
		Name: "ingot-controller", Version: c.version, Instance: c.id, Log: c.log,
	})
	return err
}

func (c *Controller) openStore(ctx context.Context) (err error) {
	c.store, err = store.New(ctx, store.Config{
		URL: c.cfg.Database.URL, PoolSize: int32(c.cfg.Database.PoolSize), StepDefaults: c.cfg.StepDefaults(), Logger: c.log,
		InstallerCmdline: c.cfg.InstallerCmdline, DefaultImage: c.cfg.DefaultImage, Now: c.clock.Now,
		Traceparent: c.traces.Traceparent, OpenSeed: c.secrets.OpenSeed, OpenArgument: c.secrets.OpenArgument,
		FileTokens: c.tokens.OfFile,
	})
	if err != nil {
		return err
	}
	c.time = &timekeeper{store: c.store, steered: c.steered, clock: c.clock, log: c.log}
	c.authority = &authorityFollower{
		store: c.store.Authorities, ca: c.ca, sessions: c.sessions, secrets: c.secrets, clock: c.clock, log: c.log,
		dataDir: c.cfg.DataDir, id: c.id, grace: c.cfg.Agents.ReenrollGrace.Duration,
	}
	return nil
}

func (c *Controller) openImages(context.Context) (err error) {
	if c.blobs, err = imagestore.Open(&c.cfg, c.log); err != nil {
		return fmt.Errorf("open the image store: %w", err)
	}
	r := c.cfg.Images.Registries
	c.images = image.New(image.Config{
		Blobs: c.blobs, Store: c.store.Catalog, Clock: c.clock, Logger: c.log, MaxBytes: c.cfg.Images.MaxBytes,
		Addresses:  webhook.Policy{Allow: c.cfg.Images.Networks()},
		Registries: oci.Client{AuthFile: r.AuthFile, Hosts: r.Hosts, PlainHTTP: r.PlainHTTP},
	})
	c.scripts = script.New(script.Config{Blobs: c.blobs, Store: c.store.Catalog, Clock: c.clock, Logger: c.log})
	return nil
}

func (c *Controller) openEngine(context.Context) (err error) {
	c.registry = metrics.NewRegistry()
	c.metrics = metrics.New(c.registry)
	c.limiter = ratelimit.New(ratelimit.Config{
		Limits: c.cfg.Clients.Limits(), MaxWait: c.cfg.Clients.MaxWait.Duration, Clock: c.clock,
		Observer: observer{c.metrics},
	})
	hooks, err := c.webhooks()
	if err != nil {
		return err
	}
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "" // operators see the id, and the log its own machine
	}
	c.engine, err = engine.New(engine.Config{
		Hostname: hostname, Marks: position.File(filepath.Join(c.cfg.DataDir, "database-position")), Store: c.store,
		Sessions: c.sessions, Clock: c.clock, Monotonic: c.ticks, Logger: c.log, ControllerID: c.id, Version: c.version,
		GrantKey: c.ca.GrantKey(), OpenArgument: c.secrets.OpenArgument, Workers: c.cfg.Workers, Lease: c.cfg.Lease.Duration,
		Heartbeat: c.cfg.Agents.HeartbeatInterval.Duration, MissedBeats: c.cfg.Agents.MissedHeartbeats,
		Admission: c.cfg.Agents.Admission.Limits(), Serving: func() bool { return c.draining.Err() == nil },
		Observer: observer{c.metrics}, Webhooks: hooks, Traces: c.traces,
		Retention: engine.Retention{Logs: c.cfg.Retention.Logs.Duration, ExportDir: c.cfg.Retention.ExportDir,
			States: c.cfg.Retention.States.Duration},
	})
	return err
}

// Addresses are where the listeners are. REST is empty where it is off.
type Addresses struct{ Frontpage, Fleet, Enrolment, HTTP, REST string }

// Addresses returns the listeners' addresses, with the real ports.
func (c *Controller) Addresses() Addresses {
	return Addresses{c.cfg.Listen.Frontpage, c.cfg.Listen.Fleet, c.cfg.Listen.Enrolment, c.cfg.Listen.HTTP,
		c.cfg.Listen.REST}
}

// RootPEM is the certificate that clients should trust.
func (c *Controller) RootPEM() []byte { return c.ca.RootPEM() }

// CAHash is the SHA-256 of the root certificate's DER, lower hex.
func (c *Controller) CAHash() string {
	h := c.ca.RootHash()
	return hex.EncodeToString(h[:])
}

// Signatures counts the agent certificates that the CA has signed in this process.
func (c *Controller) Signatures() uint64 { return c.ca.Signatures() }

// Sessions counts the agents that are connected here.
func (c *Controller) Sessions() int { return c.sessions.Len() }

// Peers counts the other controllers that are alive, as far as this one knows.
func (c *Controller) Peers() int { return c.engine.Peers() }

// Store is the controller's database, for tests and tools in this process.
func (c *Controller) Store() *store.Store { return c.store }

// Started is closed once calls are served: the database has answered and its schema is up to date.
func (c *Controller) Started() <-chan struct{} { return c.started }

// Reload reads the bearer tokens again. Streams stay open.
func (c *Controller) Reload() error { return c.tokens.Reload() }

// Run serves until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	defer c.traces.Close()
	defer c.store.Close()
	// Work outlives ctx until the drain is over; serving ends first.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, gctx := task.New(working)
	serving, quiet := context.WithCancel(gctx)
	defer quiet()
	while := func(run func(context.Context) error) func(context.Context) error {
		return func(context.Context) error { return run(serving) }
	}
	g.Go("http", c.runHTTP)
	g.Go("frontpage", while(c.servers.ServeFrontpage))
	g.Go("fleet", while(c.servers.ServeFleet))
	g.Go("enrolment", while(c.servers.ServeEnrolment))
	if c.listeners.REST != nil {
		g.Go("rest", while(c.runREST))
	}
	g.Go("engine", c.runEngine)
	g.Go("time", c.time.keep)
	g.Go("drain", func(context.Context) error {
		defer stop()
		select {
		case <-ctx.Done():
		case <-gctx.Done():
		}
		c.drainAll(quiet)
		return nil
	})
	c.log.Info("controller started", "controller_id", c.id, "version", c.version, "frontpage", c.cfg.Listen.Frontpage,
		"fleet", c.cfg.Listen.Fleet, "enrolment", c.cfg.Listen.Enrolment, "http", c.cfg.Listen.HTTP,
		"rest", c.cfg.Listen.REST)
	err := g.Wait()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = nil
	}
	c.log.Info("controller stopped", "controller_id", c.id)
	return err
}

// runEngine waits for the database, brings the schema up to date and runs the engine. A database that goes away later
// is lived through; one that is away at the start is waited for.
func (c *Controller) runEngine(ctx context.Context) error {
	for {
		err := c.prepareDatabase(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		c.ready.set(err.Error())
		c.log.Error("the database is not ready; trying again", "error", err.Error())
		select {
		case <-ctx.Done():
			return nil
		case <-c.clock.After(time.Second):
		}
	}
	close(c.started)
	c.ready.set("")
	c.log.Info("controller ready", "controller_id", c.id)
	g, _ := task.New(ctx)
	g.Go("tokens", func(ctx context.Context) error { return c.tokens.Follow(ctx, tokenSource(c.store), c.clock) })
	g.Go("engine", c.engine.Run)
	g.Go("authority", c.authority.follow)
	return g.Wait()
}

func (c *Controller) prepareDatabase(ctx context.Context) error {
	if err := c.store.DB.CheckSessions(ctx); err != nil { // before a statement that a lost session would fail
		return err
	}
	if err := c.time.follow(ctx); err != nil {
		return err
	}
	if c.cfg.Database.Migrate {
		if err := c.store.Schema.MigrateUp(ctx); err != nil {
			return err
		}
	} else if err := c.store.Schema.CheckProgram(ctx); err != nil {
		return err
	}
	if err := c.store.Catalog.SeedPlans(ctx, c.clock.Now()); err != nil {
		return err
	}
	if err := c.authority.load(ctx); err != nil {
		return err
	}
	if err := c.sweepImages(ctx); err != nil {
		return err
	}
	return c.engine.RenewLease(ctx)
}

// sweepTime bounds what a bucket may take of a start.
const sweepTime = 10 * time.Second

// sweepImages does without where a bucket is away: a start needs no images.
func (c *Controller) sweepImages(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	err := c.images.Sweep(within)
	if c.cfg.Images.Bucket.Name == "" || err == nil || ctx.Err() != nil {
		return err
	}
	c.log.Warn("the bucket was not swept; the next start will", "error", err.Error())
	return nil
}
