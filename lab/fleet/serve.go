package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
)

// order is what one process asks of another that holds a part of a fleet. Orders and answers are lines of JSON.
type order struct {
	Do     string  `json:"do"`
	Config *Config `json:"config,omitempty"`
	Specs  []Spec  `json:"specs,omitempty"`
}

const (
	doStart    = "start"
	doAdd      = "add"
	doStatus   = "status"
	doReport   = "report"
	doReported = "reported"
	doReceipts = "receipts"
)

type answer struct {
	Error  string               `json:"error,omitempty"`
	Status *Status              `json:"status,omitempty"`
	Counts map[string]int64     `json:"counts,omitempty"`
	Times  map[string]time.Time `json:"times,omitempty"`
}

// The heap's room in a process of agents: in percent of the live bytes, and in bytes with the live ones.
const (
	roomPercent = 300
	roomAtMost  = 5 << 30
)

// Serve takes the orders of a Remote until there are no more, or ctx ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	var f *Fleet
	defer func() {
		if f != nil {
			err = errors.Join(err, f.Stop())
		}
	}()
	dec, enc := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for ctx.Err() == nil {
		var o order
		if err := dec.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read order: %w", err)
		}
		var a answer
		if f == nil {
			f, err = begin(ctx, o)
		} else {
			err = f.obey(ctx, o, &a)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := enc.Encode(a); err != nil {
			return fmt.Errorf("answer order: %w", err)
		}
	}
	return nil
}

func begin(ctx context.Context, o order) (*Fleet, error) {
	if o.Do != doStart || o.Config == nil {
		return nil, fmt.Errorf("the first order is %q", doStart)
	}
	// Collections of simulated agents take processor time from the measurement. Real ones have a processor each.
	if os.Getenv("GOGC") == "" {
		percent, most := roomPercent, int64(roomAtMost)
		if o.Config.Room > 0 {
			percent, most = -1, o.Config.Room
		}
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(most)
	}
	return Start(ctx, *o.Config)
}

func (f *Fleet) obey(ctx context.Context, o order, a *answer) error {
	switch o.Do {
	case doAdd:
		f.Add(o.Specs...)
	case doStatus:
		st := f.Status()
		a.Status = &st
	case doReport:
		return f.Report(ctx)
	case doReported:
		a.Counts = f.Reported()
	case doReceipts:
		a.Times = f.receipts.TakeAll()
	default:
		return fmt.Errorf("unknown order %q", o.Do)
	}
	return nil
}

// Remote is a part of a fleet in a process of its own.
type Remote struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
}

// Launch starts the command, which must call Serve, and a fleet without agents in it. Its log goes to the file.
func Launch(cfg Config, log *os.File, name string, args ...string) (*Remote, error) {
	r := &Remote{cmd: exec.Command(name, args...)}
	r.cmd.Stderr = log
	// A signal from the keyboard is for us: we stop the children in order. Should we be killed, they go too.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start agents: %w", err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start agents: %w", err)
	}
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start agents: %w", err)
	}
	r.in, r.enc, r.dec = in, json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	if _, err := r.do(order{Do: doStart, Config: &cfg}); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	return r, nil
}

func (r *Remote) do(o order) (a answer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enc.Encode(o); err != nil {
		return a, fmt.Errorf("order %s: %w", o.Do, err)
	}
	if err := r.dec.Decode(&a); err != nil {
		return a, fmt.Errorf("order %s: %w", o.Do, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("order %s: %s", o.Do, a.Error)
	}
	return a, nil
}

// Pid is that of the process.
func (r *Remote) Pid() int { return r.cmd.Process.Pid }

// Add is Fleet.Add.
func (r *Remote) Add(specs ...Spec) error {
	_, err := r.do(order{Do: doAdd, Specs: specs})
	return err
}

// Status is Fleet.Status. A part that has ended is an error.
func (r *Remote) Status() (Status, error) {
	a, err := r.do(order{Do: doStatus})
	if err != nil || a.Status == nil {
		return Status{}, errors.Join(err, errors.New("no status of a part of the fleet"))
	}
	if a.Status.Failed != "" {
		return *a.Status, fmt.Errorf("a part of the fleet has ended: %s", a.Status.Failed)
	}
	return *a.Status, nil
}

// Report is Fleet.Report.
func (r *Remote) Report() error {
	_, err := r.do(order{Do: doReport})
	return err
}

// Reported is Fleet.Reported.
func (r *Remote) Reported() (map[string]int64, error) {
	a, err := r.do(order{Do: doReported})
	return a.Counts, err
}

// Receipts is Receipts.TakeAll.
func (r *Remote) Receipts() (map[string]time.Time, error) {
	a, err := r.do(order{Do: doReceipts})
	return a.Times, err
}

// stopTime is what a part of a fleet may take to end its sessions.
const stopTime = 3 * time.Minute

// Stop ends the process and waits for it.
func (r *Remote) Stop() error {
	err := r.in.Close()
	ended := make(chan error, 1)
	task.Background("await agents", func() { ended <- r.cmd.Wait() })
	select {
	case werr := <-ended:
		return errors.Join(err, werr)
	case <-time.After(stopTime):
		return errors.Join(errors.New("a part of the fleet does not end; killed"), r.cmd.Process.Kill(), <-ended)
	}
}
