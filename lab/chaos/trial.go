package main

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
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/process"
)

// trialOptions say what a system is made of, and what breaks it.
type trialOptions struct {
	agents                      int
	bin, stepped, planted, only string
	quiet                       time.Duration // for which a system may take to come to rest
	standby                     bool          // of one cell: its database has a standby
}

// trial is one system that is broken again and again.
type trial struct {
	o    trialOptions
	dir  string
	lock *os.File // held while the cell is somebody's
	bin  string
	self string // this program, for the recorder

	db          *postgres
	steppable   bool // its programs' wall clocks can be stepped
	recorder    *process.Process
	world       *sim.World
	token       string
	controllers []*controllerProgram
	agents      []*agentProgram
	stop        context.CancelFunc
	readers     sync.WaitGroup
	watch       watcher
	follow      follower

	mu       sync.Mutex
	effects  int64 // how far the record has been read
	deaths   []death
	runCount int
}

// death is a process that ended by itself.
type death struct {
	name string
	err  error
	at   time.Time
}

// settleTime bounds what happens while nothing is broken.
const settleTime = 10 * time.Minute

func newCell(ctx context.Context, o trialOptions, controllers int, steppable bool) (c *trial, err error) {
	c = &trial{o: o, steppable: steppable}
	if steppable {
		o.bin = o.stepped
	}
	if c.dir, err = os.MkdirTemp("", cellPrefix); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
			c = nil
		}
	}()
	if c.lock, err = claim(c.dir); err != nil {
		return c, err
	}
	// PostgreSQL may run as another user, who must come through.
	if err := os.Chmod(c.dir, 0o755); err != nil {
		return c, err
	}
	if c.bin, err = filepath.Abs(o.bin); err != nil {
		return c, err
	}
	if c.self, err = os.Executable(); err != nil {
		return c, err
	}
	if c.db, err = openPostgres(ctx, c.path("postgres"), o.standby); err != nil {
		return c, err
	}
	if err := c.startRecorder(ctx); err != nil {
		return c, err
	}
	if c.token, err = auth.AddToken(c.path("tokens"), "chaos", auth.ScopeAdmin); err != nil {
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
func (c *trial) populate(ctx context.Context) error {
	for i := range c.o.agents {
		a, err := c.newAgent(ctx, i)
		if a != nil {
			c.agents = append(c.agents, a)
		}
		if err != nil {
			return err
		}
	}
	for _, a := range c.agents {
		if err := c.prepare(ctx, a); err != nil {
			return err
		}
	}
	if err := c.register(ctx, sentinel); err != nil {
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

func (c *trial) path(name string) string { return filepath.Join(c.dir, name) }

func (c *trial) startRecorder(ctx context.Context) error {
	log, err := openLog(c.path("recorder.log"))
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	c.recorder, err = process.Start(process.Config{Path: c.self,
		Args: []string{"record", c.path("recorder"), c.path("effects")}, Output: log})
	if err != nil {
		return err
	}
	if err := until(ctx, settleTime, "the recorder", func() bool {
		_, err := os.Stat(c.path("recorder"))
		return err == nil
	}); err != nil {
		return err
	}
	c.world, err = sim.OpenWorld(sim.WorldConfig{Dir: c.path("world"), NoSync: true, Recorder: c.path("recorder")})
	return err
}

// died notes that a process ended and nobody had made it.
func (c *trial) died(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaths = append(c.deaths, death{name, err, time.Now()})
}

// spent says that the cell is of no more use: a machine waits for an operator.
func (c *trial) spent() bool {
	return slices.ContainsFunc(c.agents, func(a *agentProgram) bool { return a.elsewhere })
}

// programs are all that can be killed and started again.
func (c *trial) programs() []*program {
	var out []*program
	for _, p := range c.controllers {
		out = append(out, &p.program)
	}
	for _, a := range c.agents {
		out = append(out, &a.program)
	}
	return out
}

// close takes everything down and removes it.
func (c *trial) close() error {
	if c.stop != nil {
		c.stop()
	}
	c.readers.Wait()
	var errs []error
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
		errs = append(errs, c.db.close(ctx))
	}
	if err := os.RemoveAll(c.dir); err != nil {
		errs = append(errs, fmt.Errorf("remove the cell: %w", err))
	}
	if c.lock != nil {
		errs = append(errs, c.lock.Close())
	}
	return errors.Join(errs...)
}

func (c *trial) newClock(name string) (*steppedClock, error) {
	if !c.steppable {
		return nil, nil
	}
	return newSteppedClock(c.path(name + ".clock"))
}
