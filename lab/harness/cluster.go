package harness

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest" // registers the migrations of test databases, too
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/relay"
)

// Options change a Cluster. The zero value is good.
type Options struct {
	// Configure changes the controller's configuration.
	Configure func(*config.Config)
	// DatabaseURL is used instead of a database of the test's own.
	DatabaseURL string
	// Stopped leaves the controller out; the test starts it.
	Stopped bool
	// DatabaseDown refuses the controller its database until Database().Unblock().
	DatabaseDown bool
	// Context carries values into the controller, such as a failpoint scope. It does not end it.
	Context context.Context //nolint:containedctx // handed on at the start
}

// Cluster is a database, a data directory and the controller on them.
type Cluster struct {
	*Client
	t    testing.TB
	o    Options
	log  *slog.Logger
	dir  string
	Data string // the controller's data directory

	Front, Fleet, Enrolment *Relay

	mu      sync.Mutex
	current *incarnation
	count   int
}

// incarnation is one life of the controller.
type incarnation struct {
	ctl      *controller.Controller
	database *Relay
	stop     context.CancelFunc
	done     chan struct{}
	err      error
}

// New starts a cluster that ends with the test.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.DatabaseURL == "" {
		o.DatabaseURL = testkit.Database(t)
	}
	dir := t.TempDir()
	c := &Cluster{
		t: t, o: o, log: Logger(), dir: dir, Data: filepath.Join(dir, "data"),
		Front: NewRelay(t, "tcp", ""), Fleet: NewRelay(t, "tcp", ""), Enrolment: NewRelay(t, "tcp", ""),
	}
	secret, err := auth.AddToken(c.TokensFile(), "tester", access.ScopeAdmin)
	if err != nil {
		t.Fatalf("make token: %v", err)
	}
	c.Client = newClient(t, c.Front.Address(), filepath.Join(c.Data, "ca.pem"), secret)
	t.Cleanup(c.Stop)
	if !o.Stopped {
		c.Start()
		c.WaitReady()
	}
	return c
}

// Logger discards, unless INGOT_TEST_LOG names a level: debug, info, warn or error.
func Logger() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(os.Getenv("INGOT_TEST_LOG"))); err != nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// TokensFile holds the bearer tokens.
func (c *Cluster) TokensFile() string { return filepath.Join(c.dir, "tokens") }

func seconds(s float64) config.Duration {
	return config.Duration{Duration: time.Duration(s * float64(time.Second))}
}

// StepTime is how long a step may take unless the request or a client's plan has another: enough on a machine that does
// ten other things.
const StepTime = time.Minute

// limits are for tests: a lost lease or agent is seen within seconds.
func limits() config.Config {
	c := config.Default()
	c.Listen = config.Listen{Frontpage: "127.0.0.1:0", Fleet: "127.0.0.1:0", Enrolment: "127.0.0.1:0", HTTP: "127.0.0.1:0"}
	c.TLS.Names = []string{"127.0.0.1", "localhost"}
	c.Agents.HeartbeatInterval = seconds(1)
	c.Agents.MissedHeartbeats = 10 // so that a busy processor does not make a machine unreachable
	c.Lease = seconds(4)
	c.Workers = 32
	c.Steps = map[string]config.Step{}
	none := 1
	for _, kind := range []string{"reboot", "netboot", "repave", "net", "wait_for_agent"} {
		c.Steps[kind] = config.Step{Timeout: &config.Duration{Duration: StepTime}, Retries: &none}
	}
	return *c
}

// databaseRelay leads to the database, whether that listens on a socket or on a port. It can lose COMMITs.
func (c *Cluster) databaseRelay() (*Relay, string) {
	r, through, err := relay.ForDatabase(c.o.DatabaseURL)
	if err != nil {
		c.t.Fatal(err)
	}
	return r, through
}

// Start starts a controller where there is none.
func (c *Cluster) Start() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		c.t.Fatal("a controller is running")
	}
	in, err := c.start()
	if err != nil {
		c.t.Fatalf("start controller: %v", err)
	}
	c.current = in
	c.count++
	a := in.ctl.Addresses()
	c.Front.Retarget("tcp", a.Frontpage)
	c.Fleet.Retarget("tcp", a.Fleet)
	c.Enrolment.Retarget("tcp", a.Enrolment)
}

func (c *Cluster) start() (*incarnation, error) {
	relay, databaseURL := c.databaseRelay()
	if c.o.DatabaseDown {
		relay.Block()
	}
	cfg := limits()
	cfg.DataDir, cfg.TokensFile = c.Data, c.TokensFile()
	cfg.Database.URL = databaseURL
	cfg.Advertise = config.Advertise{Fleet: []string{c.Fleet.Address()}, Enrolment: []string{c.Enrolment.Address()}}
	if c.o.Configure != nil {
		c.o.Configure(&cfg)
	}
	ctx := context.Background()
	if c.o.Context != nil {
		ctx = context.WithoutCancel(c.o.Context)
	}
	ctx, stop := context.WithCancel(ctx)
	log := c.log.With("incarnation", c.count+1)
	ctl, err := controller.New(ctx, cfg, controller.Options{Logger: log, Version: "test"})
	if err != nil {
		stop()
		relay.Close()
		return nil, err
	}
	in := &incarnation{ctl: ctl, database: relay, stop: stop, done: make(chan struct{})}
	task.Background("controller under test", func() {
		defer close(in.done)
		in.err = ctl.Run(ctx)
		relay.Close()
	})
	return in, nil
}

// Controller is the one that runs now.
func (c *Cluster) Controller() *controller.Controller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.ctl
}

// Database is the way from the controller that runs now to PostgreSQL.
func (c *Cluster) Database() *Relay {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.database
}

// Stop stops the controller in peace, if there is one.
func (c *Cluster) Stop() {
	c.mu.Lock()
	in := c.current
	c.current = nil
	c.mu.Unlock()
	if in == nil {
		return
	}
	in.stop()
	c.await(in)
	if in.err != nil && !errors.Is(in.err, context.Canceled) {
		c.t.Errorf("the controller ended with %v", in.err)
	}
}

func (c *Cluster) await(in *incarnation) {
	select {
	case <-in.done:
	case <-time.After(time.Minute):
		c.t.Error("the controller does not end")
	}
}

// Kill makes the controller vanish: its database goes first, so that nothing that is still under way is stored.
func (c *Cluster) Kill() {
	c.mu.Lock()
	in := c.current
	c.current = nil
	c.mu.Unlock()
	if in == nil {
		return
	}
	in.database.Block()
	for _, r := range []*Relay{c.Front, c.Fleet, c.Enrolment} {
		r.Block()
	}
	in.stop()
	c.t.Cleanup(func() { c.await(in) })
}

// Restart kills the controller and starts another on the same database, keys and addresses.
func (c *Cluster) Restart() {
	c.t.Helper()
	c.Kill()
	c.Start()
}

// WaitReady waits until the controller answers calls.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	testkit.Eventually(c.t, time.Minute, func() bool {
		ready, _ := c.Readiness()
		return ready
	}, "the controller is not ready: %v", lazy(func() string { _, why := c.Readiness(); return why }))
}

// lazy is evaluated only when it is printed.
type lazy func() string

func (l lazy) String() string { return l() }

// Restored marks the database as restored from a backup, as an operator does before a controller is started.
func (c *Cluster) Restored(t testing.TB) {
	t.Helper()
	s, err := store.New(t.Context(), store.Config{URL: c.o.DatabaseURL, PoolSize: 1, Logger: c.log})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Incarnations.Restored(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
}

// Aged makes the current step of an operation as old as if it had begun so much earlier: no test waits an hour.
func (c *Cluster) Aged(t testing.TB, operationID string, by time.Duration) {
	t.Helper()
	s, err := store.New(t.Context(), store.Config{URL: c.o.DatabaseURL, PoolSize: 1, Logger: c.log})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	storetest.Age(t, s, operationID, by)
}

// ForgetAuthorities makes the database one from before the first rotation of the CA.
func (c *Cluster) ForgetAuthorities(t testing.TB) {
	t.Helper()
	s, err := store.New(t.Context(), store.Config{URL: c.o.DatabaseURL, PoolSize: 1, Logger: c.log})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	storetest.ForgetAuthorities(t, s)
}

// Readiness asks /readyz.
func (c *Cluster) Readiness() (ready bool, answer string) {
	return readiness("http://" + c.Controller().Addresses().HTTP)
}
