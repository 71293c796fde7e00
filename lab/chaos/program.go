package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/process"
)

// program is a controller or an agent: a process that is started again whenever it has ended.
type program struct {
	name    string
	log     *os.File
	read    int64 // how far its log has been read
	env     []string
	clock   *steppedClock // nil where it can't be stepped
	command func() (path string, args []string)
	// before is called before each start and started after it, by whoever starts it. Both may be nil.
	before, started func() error
	// ended is told when the process ended and nobody here had made it.
	ended func(name string, err error)

	// busy is held by a fault of the process, so that two don't meet in one.
	busy sync.Mutex

	mu         sync.Mutex
	current    *process.Process
	failpoints string
	held       bool // somebody else starts it
	closed     bool
}

// start runs it, with these failpoints armed.
func (p *program) start(failpoints string) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return errors.New("the cell is being taken down")
	}
	if p.before != nil {
		if err := p.before(); err != nil {
			p.mu.Unlock()
			return err
		}
	}
	path, args := p.command()
	proc, err := process.Start(process.Config{
		Path: path, Args: args, Env: slices.Concat([]string{"INGOT_FAILPOINTS=" + failpoints}, p.env, p.clock.environment()),
		Output: p.log,
	})
	if err != nil {
		p.mu.Unlock()
		return err
	}
	p.current, p.failpoints, p.held = proc, failpoints, false
	p.mu.Unlock()
	task.Background("watch "+p.name, func() { p.watch(proc) })
	if p.started == nil {
		return nil
	}
	return p.started()
}

// watch starts it again when it ends.
func (p *program) watch(proc *process.Process) {
	<-proc.Gone()
	p.mu.Lock()
	mine := p.current == proc && !p.held && !p.closed
	p.mu.Unlock()
	if !mine {
		return
	}
	p.ended(p.name, proc.Err())
	<-clock.Real().After(100 * time.Millisecond)
	p.mu.Lock()
	mine = p.current == proc && !p.held && !p.closed
	p.mu.Unlock()
	if mine {
		if err := p.start(""); err != nil {
			say("%s: %v", p.name, err)
		}
	}
}

// kill ends it at once and keeps it down until start.
func (p *program) kill() error {
	p.mu.Lock()
	p.held = true
	proc := p.current
	p.mu.Unlock()
	return proc.Kill()
}

// armed says that failpoints are set in the running process.
func (p *program) armed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failpoints != ""
}

func (p *program) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current.Pid()
}

func (p *program) freeze() error { return p.signal(syscall.SIGSTOP) }

func (p *program) thaw() error { return p.signal(syscall.SIGCONT) }

func (p *program) signal(s os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current.Signal(s)
}

// close ends it for good.
func (p *program) close() error {
	p.mu.Lock()
	p.closed = true
	proc := p.current
	p.mu.Unlock()
	if proc == nil {
		return nil
	}
	return errors.Join(proc.Kill(), p.log.Close())
}

func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return f, nil
}

// rest waits, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-clock.Real().After(d):
	}
}

// until polls for cond.
func until(ctx context.Context, limit time.Duration, what string, cond func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !cond() {
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
		rest(ctx, 20*time.Millisecond)
	}
	return nil
}

// injected finds the failpoints whose errors a log tells of.
var injected = regexp.MustCompile(`failpoint ([a-z0-9._-]+): injected failure`)

// said is what a program's log tells of.
type said struct {
	sessions []check.Session
	grants   []check.Grant
	fired    []string // failpoints, by their errors
}

// said is what the program's log tells of since the mark.
func (p *program) said() (out said, err error) {
	f, err := os.Open(p.log.Name())
	if err != nil {
		return out, fmt.Errorf("read log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(p.read, io.SeekStart); err != nil {
		return out, fmt.Errorf("read log: %w", err)
	}
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 4<<20)
	for scan.Scan() {
		if m := injected.FindSubmatch(scan.Bytes()); m != nil {
			out.fired = append(out.fired, string(m[1]))
		}
		var l struct {
			Msg        string `json:"msg"`
			Agent      string `json:"agent_id"`
			Session    string `json:"session_id"`
			Epoch      int64  `json:"epoch"`
			Controller string `json:"controller_id"`
			Command    string `json:"command_id"`
		}
		// A line that a killed process left half is none.
		if json.Unmarshal(scan.Bytes(), &l) != nil {
			continue
		}
		switch l.Msg {
		case "session open", "session opened":
			out.sessions = append(out.sessions, check.Session{
				Agent: l.Agent, Session: l.Session, Epoch: l.Epoch, Controller: l.Controller, ByAgent: l.Msg == "session open",
			})
		case "grant given":
			out.grants = append(out.grants, check.Grant{Command: l.Command, Agent: l.Agent})
		}
	}
	return out, scan.Err()
}

// disarm gives a process with failpoints a successor without.
func (p *program) disarm() error {
	p.busy.Lock()
	defer p.busy.Unlock()
	if !p.armed() {
		return nil
	}
	if err := p.kill(); err != nil {
		return err
	}
	return p.start("")
}

// say tells a human what goes on; the results alone go to standard output.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "chaos: "+format+"\n", args...) }
