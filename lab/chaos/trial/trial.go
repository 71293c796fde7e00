package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/chaos/database"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/chaos/receiver"
	"github.com/ingot-metal/ingot/lab/process"
)

// Options say what a system is made of, and what breaks it.
type Options struct {
	Agents                      int
	Bin, Stepped, Planted, Only string
	Quiet                       time.Duration // for which a system may take to come to rest
	Standby                     bool          // of one cell: its database has a standby
	Wide                        bool          // of one cell: many machines behind the agent of one site
	Old                         string        // the older controller of wide worlds; may be empty
}

// Trial is one system that is broken again and again.
type Trial struct {
	o    Options
	dir  string
	lock *os.File // held while the cell is in use
	bin  string
	self string // this program, for the recorder

	db          *database.Server
	steppable   bool // its programs' wall clocks can be stepped
	recorder    *process.Process
	world       *sim.World
	token       string
	controllers []*controllerProgram
	agents      []*agentProgram
	machines    []target
	hooks       *receiver.Receiver // nil where nothing receives webhooks
	stop        context.CancelFunc
	readers     sync.WaitGroup
	watch       watcher
	follow      follower

	wanted int // how many controllers it has once all are started

	mu       sync.Mutex
	effects  int64 // how far the record has been read
	deaths   []death
	runCount int
}

// target is a machine that operations act on, with the agent that does.
type target struct {
	id    string
	agent *agentProgram
}

// death is a process that ended by itself.
type death struct {
	name string
	err  error
	at   time.Time
}

// settleTime bounds what happens while nothing is broken.
const settleTime = 10 * time.Minute

// New starts a system: its database, controllers, agents and recorder.
func New(ctx context.Context, o Options, controllers int, steppable bool) (c *Trial, err error) {
	if o.Wide {
		o.Agents = 1
	}
	c = &Trial{o: o, steppable: steppable, wanted: controllers}
	if steppable {
		o.Bin = o.Stepped
	}
	if c.dir, err = os.MkdirTemp("", CellPrefix); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
			c = nil
		}
	}()
	if c.lock, err = Claim(c.dir); err != nil {
		return c, err
	}
	// PostgreSQL may run as another user, who must come through.
	if err := os.Chmod(c.dir, 0o755); err != nil {
		return c, err
	}
	if c.bin, err = filepath.Abs(o.Bin); err != nil {
		return c, err
	}
	if c.self, err = os.Executable(); err != nil {
		return c, err
	}
	if c.db, err = database.Open(ctx, c.Path("postgres"), o.Standby); err != nil {
		return c, err
	}
	if err := c.startRecorder(ctx); err != nil {
		return c, err
	}
	if c.token, err = auth.AddToken(c.Path("tokens"), "chaos", access.ScopeAdmin); err != nil {
		return c, err
	}
	for i := range controllers {
		p, err := c.newController(ctx, i)
		if err != nil {
			return c, err
		}
		c.controllers = append(c.controllers, p)
	}
	return c, c.populate(ctx)
}

// populate adds machines with their agents, and those who watch.
func (c *Trial) populate(ctx context.Context) error {
	for i := range c.o.Agents {
		a, err := c.newAgent(ctx, i)
		if a != nil {
			c.agents = append(c.agents, a)
		}
		if err != nil {
			return err
		}
		c.machines = append(c.machines, target{a.machine, a})
	}
	if c.o.Wide {
		if err := c.registerWide(ctx); err != nil {
			return err
		}
	}
	for _, a := range c.agents {
		if err := program.Until(ctx, settleTime, a.Name, func() bool { return c.connected(ctx, a) }); err != nil {
			return err
		}
	}
	for _, m := range c.machines {
		if err := c.prepare(ctx, m.id); err != nil {
			return err
		}
	}
	if err := c.register(ctx, &baremetalv1.Machine{MachineId: sentinel}); err != nil {
		return err
	}
	if err := c.openWide(ctx); err != nil {
		return err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	for name, fn := range map[string]func(context.Context){"watch operations": c.watchOperations,
		"follow machines": c.followMachines} {
		c.readers.Add(1)
		task.Background(name, func() {
			defer c.readers.Done()
			fn(watching)
		})
	}
	return nil
}

// Path is a file's path in the system's directory.
func (c *Trial) Path(name string) string { return filepath.Join(c.dir, name) }

func (c *Trial) startRecorder(ctx context.Context) error {
	log, err := program.OpenLog(c.Path("recorder.log"))
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	c.recorder, err = process.Start(process.Config{Path: c.self,
		Args: []string{"record", c.Path("recorder"), c.Path("effects")}, Output: log})
	if err != nil {
		return err
	}
	if err := program.Until(ctx, settleTime, "the recorder", func() bool {
		_, err := os.Stat(c.Path("recorder"))
		return err == nil
	}); err != nil {
		return err
	}
	c.world, err = sim.OpenWorld(sim.WorldConfig{Dir: c.Path("world"), NoSync: true, Recorder: c.Path("recorder")})
	return err
}

// died records that a process has ended without an order.
func (c *Trial) died(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaths = append(c.deaths, death{name, err, time.Now()})
}

// Spent reports whether the cell is of no more use: a machine waits for an operator.
func (c *Trial) Spent() bool {
	return slices.ContainsFunc(c.agents, func(a *agentProgram) bool { return a.elsewhere })
}

// Programs are all that can be killed and started again.
func (c *Trial) Programs() []*program.Program {
	var out []*program.Program
	for _, p := range c.controllers {
		out = append(out, &p.Program)
	}
	for _, a := range c.agents {
		out = append(out, &a.Program)
	}
	return out
}

// Close takes everything down and removes it.
func (c *Trial) Close() error {
	if c.stop != nil {
		c.stop()
	}
	c.readers.Wait()
	var errs []error
	if c.hooks != nil {
		errs = append(errs, c.hooks.Close())
	}
	for _, a := range c.agents {
		errs = append(errs, a.close())
	}
	for _, p := range c.controllers {
		errs = append(errs, p.close())
	}
	if c.recorder != nil {
		errs = append(errs, c.recorder.Kill())
	}
	if c.db != nil {
		ctx, cancel := context.WithTimeout(context.Background(), settleTime)
		defer cancel()
		errs = append(errs, c.db.Close(ctx))
	}
	if err := os.RemoveAll(c.dir); err != nil {
		errs = append(errs, fmt.Errorf("remove the cell: %w", err))
	}
	if c.lock != nil {
		errs = append(errs, c.lock.Close())
	}
	return errors.Join(errs...)
}

func (c *Trial) newClock(name string) (*program.SteppedClock, error) {
	if !c.steppable {
		return nil, nil
	}
	return program.NewSteppedClock(c.Path(name + ".clock"))
}
