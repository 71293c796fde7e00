package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/kill/judge"
	"github.com/ingot-metal/ingot/lab/process"
)

// fleet is the whole system under test.
type fleet struct {
	o         options
	dir, self string
	bin       string
	begun     time.Time
	working   time.Duration // when clients and faults begin, since begun

	database    *database
	recorder    *process.Process
	world       *sim.World
	token       string
	controllers []*controllerProgram
	site        *agentProgram
	hosts       []*agentProgram
	machines    []string // behind the site agent
	events      *events

	background sync.WaitGroup
	stop       context.CancelFunc

	mu     sync.Mutex
	calls  []check.Call
	faults []check.Fault
	asked  []judge.Explanation
}

// newFleet starts a system and waits until every agent is connected and every machine registered.
func newFleet(ctx context.Context, o options) (f *fleet, err error) {
	f = &fleet{o: o, begun: time.Now(), events: &events{}}
	if f.dir, err = os.MkdirTemp("", "ingot-kill-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.keepLogs(), f.close())
		}
	}()
	// PostgreSQL may run as another user, who must come through.
	if err := os.Chmod(f.dir, 0o755); err != nil {
		return f, err
	}
	if f.bin, err = filepath.Abs(o.bin); err != nil {
		return f, err
	}
	if f.self, err = os.Executable(); err != nil {
		return f, err
	}
	if f.database, err = openDatabase(ctx, f.path("postgres")); err != nil {
		return f, err
	}
	if err := f.startRecorder(ctx); err != nil {
		return f, err
	}
	if f.token, err = auth.AddToken(f.path("tokens"), "kill", access.ScopeAdmin); err != nil {
		return f, err
	}
	for i := range 2 {
		p, err := f.newController(ctx, i)
		if err != nil {
			return f, err
		}
		f.controllers = append(f.controllers, p)
	}
	return f, f.populate(ctx)
}

// populate starts the agents, registers the machines and begins to follow the events.
func (f *fleet) populate(ctx context.Context) (err error) {
	if f.site, err = f.newSite(ctx); err != nil {
		return err
	}
	for i := range f.o.hosts {
		a, err := f.newHost(ctx, i)
		if a != nil {
			f.hosts = append(f.hosts, a)
		}
		if err != nil {
			return err
		}
	}
	for i := range f.o.machines {
		id := fmt.Sprintf("m-%03d", i+1)
		spec := &baremetalv1.MachineSpec{Provider: "fake", Site: judge.Site}
		if err := f.register(ctx, id, spec); err != nil {
			return err
		}
		f.machines = append(f.machines, id)
	}
	if err := f.register(ctx, sentinel, nil); err != nil {
		return err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	f.background.Add(1)
	task.Background("watch operations", func() {
		defer f.background.Done()
		f.watchOperations(watching)
	})
	if err := program.Until(ctx, f.o.rest, "the agents to connect",
		func() bool { return f.allConnected(ctx) }); err != nil {
		return err
	}
	return f.takeIn(ctx)
}

// path returns the path of a file of the system.
func (f *fleet) path(name string) string { return filepath.Join(f.dir, name) }

// since returns the time since the beginning, by the monotonic clock.
func (f *fleet) since() time.Duration { return time.Since(f.begun) }

func (f *fleet) startRecorder(ctx context.Context) error {
	log, err := program.OpenLog(f.path("recorder.log"))
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	f.recorder, err = process.Start(process.Config{Path: f.self,
		Args: []string{"record", f.path("recorder"), f.path("effects")}, Output: log})
	if err != nil {
		return err
	}
	if err := program.Until(ctx, f.o.rest, "the recorder", func() bool {
		_, err := os.Stat(f.path("recorder"))
		return err == nil
	}); err != nil {
		return err
	}
	f.world, err = sim.OpenWorld(sim.WorldConfig{Dir: f.path("world"), NoSync: true, Recorder: f.path("recorder")})
	return err
}

// ended records a process that ended although no fault had ended it.
func (f *fleet) ended(name string, err error) {
	at := f.since()
	f.fault(check.Fault{Kind: "ended", Target: name, Detail: fmt.Sprint(err), Begin: at, End: at, Took: true})
}

func (f *fleet) fault(x check.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, x)
}

func (f *fleet) called(c check.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, c)
}

// agents returns the site agent and the host agents.
func (f *fleet) agents() []*agentProgram { return append([]*agentProgram{f.site}, f.hosts...) }

// programs returns all that can be killed and started again.
func (f *fleet) programs() []*program.Program {
	var out []*program.Program
	for _, p := range f.controllers {
		out = append(out, &p.Program)
	}
	for _, a := range f.agents() {
		if a != nil {
			out = append(out, &a.Program)
		}
	}
	return out
}

func (f *fleet) newClock(name string) (*program.SteppedClock, error) {
	if !f.o.steppable {
		return nil, nil
	}
	return program.NewSteppedClock(f.path(name + ".clock"))
}

// close ends everything and removes it.
func (f *fleet) close() error {
	if f.stop != nil {
		f.stop()
	}
	f.background.Wait()
	var errs []error
	for _, p := range f.programs() {
		errs = append(errs, p.Close())
	}
	for _, p := range f.controllers {
		errs = append(errs, p.close())
	}
	if f.recorder != nil {
		errs = append(errs, f.recorder.Kill())
	}
	if f.database != nil {
		ctx, cancel := context.WithTimeout(context.Background(), f.o.rest)
		defer cancel()
		errs = append(errs, f.database.cluster.Stop(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(f.dir))...)
}

// breakAndCollect lets clients work while faults strike, heals the system and returns the history.
func (f *fleet) breakAndCollect(ctx context.Context) (judge.Record, error) {
	program.Say("the system stands after %v", f.since().Round(time.Second))
	f.working = f.since()
	working, done := context.WithTimeout(ctx, f.o.duration)
	group, _ := task.New(working)
	for n := range f.o.clients {
		group.Go(fmt.Sprintf("client %d", n), func(ctx context.Context) error {
			newClient(f, n).work(ctx)
			return nil
		})
	}
	group.Go("ask why", func(ctx context.Context) error {
		f.askWhile(ctx)
		return nil
	})
	for _, s := range draw(f.o.seed, f.o.duration, f.o.hosts, f.o.only) {
		group.Go(s.kind, func(ctx context.Context) error { return f.strike(ctx, s) })
	}
	err := group.Wait()
	done()
	program.Say("%v of faults are over; healing", f.o.duration)
	if err = errors.Join(err, f.heal(ctx)); err != nil || ctx.Err() != nil {
		return judge.Record{}, errors.Join(err, ctx.Err())
	}
	unfinished := ""
	if err := f.settle(ctx); err != nil {
		unfinished = err.Error()
	}
	program.Say("at rest after %v", f.since().Round(time.Second))
	return f.collect(ctx, unfinished)
}

// keepLogs copies the logs of all processes into the directory of kept runs.
func (f *fleet) keepLogs() error {
	var errs []error
	for _, name := range []string{"effects", "postgres/postgres.log"} {
		errs = append(errs, copyFile(f.path(name), filepath.Join(f.o.out, filepath.Base(name))))
	}
	for _, p := range f.programs() {
		if p.Log != nil {
			errs = append(errs, copyFile(p.Log.Name(), filepath.Join(f.o.out, p.Name+".log")))
		}
	}
	return errors.Join(errs...)
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.WriteFile(to, b, 0o644))
}
