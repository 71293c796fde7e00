package program

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

// Program is a controller or an agent: a process that is started again whenever it has ended.
type Program struct {
	Name    string
	Log     *os.File
	Read    int64 // how far its log has been read
	Env     []string
	Clock   *SteppedClock // nil where it can't be stepped
	Command func() (path string, args []string)
	// Before is called before each start and Started after it, on the starter's goroutine. Both may be nil.
	Before, Started func() error
	// Ended is called when the process has ended without an order from here.
	Ended func(name string, err error)

	// Busy is held by a fault of the process, so that two don't meet in one.
	Busy sync.Mutex

	mu         sync.Mutex
	current    *process.Process
	failpoints string
	held       bool // another task starts it
	closed     bool
}

// Start runs it, with these failpoints armed.
func (p *Program) Start(failpoints string) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return errors.New("the cell is being taken down")
	}
	if p.Before != nil {
		if err := p.Before(); err != nil {
			p.mu.Unlock()
			return err
		}
	}
	path, args := p.Command()
	proc, err := process.Start(process.Config{
		Path: path, Args: args, Env: slices.Concat([]string{"INGOT_FAILPOINTS=" + failpoints}, p.Env, p.Clock.Environment()),
		Output: p.Log,
	})
	if err != nil {
		p.mu.Unlock()
		return err
	}
	p.current, p.failpoints, p.held = proc, failpoints, false
	p.mu.Unlock()
	task.Background("watch "+p.Name, func() { p.watch(proc) })
	if p.Started == nil {
		return nil
	}
	return p.Started()
}

// watch starts it again when it ends.
func (p *Program) watch(proc *process.Process) {
	<-proc.Gone()
	p.mu.Lock()
	mine := p.current == proc && !p.held && !p.closed
	p.mu.Unlock()
	if !mine {
		return
	}
	p.Ended(p.Name, proc.Err())
	<-clock.Real().After(100 * time.Millisecond)
	p.mu.Lock()
	mine = p.current == proc && !p.held && !p.closed
	p.mu.Unlock()
	if mine {
		if err := p.Start(""); err != nil {
			Say("%s: %v", p.Name, err)
		}
	}
}

// Kill ends it at once and keeps it down until start.
func (p *Program) Kill() error {
	p.mu.Lock()
	p.held = true
	proc := p.current
	p.mu.Unlock()
	return proc.Kill()
}

// Stop asks it to end by SIGTERM, kills it after the limit, and keeps it down until Start.
func (p *Program) Stop(limit time.Duration) error {
	p.mu.Lock()
	p.held = true
	proc := p.current
	p.mu.Unlock()
	return proc.Stop(limit)
}

// armed reports whether failpoints are set in the running process.
func (p *Program) armed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failpoints != ""
}

// Pid is the process's id; 0 where none runs.
func (p *Program) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current.Pid()
}

// Freeze stops the process without ending it.
func (p *Program) Freeze() error { return p.signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (p *Program) Thaw() error { return p.signal(syscall.SIGCONT) }

func (p *Program) signal(s os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current.Signal(s)
}

// Close ends it for good.
func (p *Program) Close() error {
	p.mu.Lock()
	p.closed = true
	proc := p.current
	p.mu.Unlock()
	if proc == nil {
		return nil
	}
	return errors.Join(proc.Kill(), p.Log.Close())
}

// OpenLog opens a program's log, to write at its end.
func OpenLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return f, nil
}

// Rest waits, or until ctx ends.
func Rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-clock.Real().After(d):
	}
}

// Until polls for cond.
func Until(ctx context.Context, limit time.Duration, what string, cond func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !cond() {
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
		Rest(ctx, 20*time.Millisecond)
	}
	return nil
}

// injected returns the failpoints whose errors a log has.
var injected = regexp.MustCompile(`failpoint ([a-z0-9._-]+): injected failure`)

// Said is the evidence of a program's log.
type said struct {
	Sessions []check.Session
	Grants   []check.Grant
	Fired    []string // failpoints, by their errors
	Lost     int      // events that found no room
}

// Said returns the evidence of the program's log since the mark.
func (p *Program) Said() (out said, err error) {
	f, err := os.Open(p.Log.Name())
	if err != nil {
		return out, fmt.Errorf("read log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(p.Read, io.SeekStart); err != nil {
		return out, fmt.Errorf("read log: %w", err)
	}
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 4<<20)
	for scan.Scan() {
		if m := injected.FindSubmatch(scan.Bytes()); m != nil {
			out.Fired = append(out.Fired, string(m[1]))
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
			out.Sessions = append(out.Sessions, check.Session{
				Agent: l.Agent, Session: l.Session, Epoch: l.Epoch, Controller: l.Controller, ByAgent: l.Msg == "session open",
			})
		case "grant given":
			out.Grants = append(out.Grants, check.Grant{Command: l.Command, Agent: l.Agent})
		case "event lost":
			out.Lost++
		}
	}
	return out, scan.Err()
}

// Disarm replaces a process with failpoints by one without.
func (p *Program) Disarm() error {
	p.Busy.Lock()
	defer p.Busy.Unlock()
	if !p.armed() {
		return nil
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return p.Start("")
}

// Say prints a line on the progress; the results alone go to standard output.
func Say(format string, args ...any) { fmt.Fprintf(os.Stderr, "chaos: "+format+"\n", args...) }
