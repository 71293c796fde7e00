package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/follow"
	"github.com/ingot-metal/ingot/cli/view"
)

// screen writes lines for people, with at most one status line below them that is redrawn in place.
type screen struct {
	out    io.Writer
	status string
	err    error
}

const eraseLine = "\r\x1b[K"

// put writes text above the status line and draws status anew.
func (s *screen) put(text, status string) {
	if text == "" && status == s.status {
		return
	}
	if s.status != "" {
		text = eraseLine + text
	}
	s.status = status
	if _, err := io.WriteString(s.out, text+status); err != nil && s.err == nil {
		s.err = err
	}
}

// people gives the screen for what people read while a command runs: Out, or Err when Out takes a document.
func (a *app) people() (*screen, view.LiveConfig) {
	out, terminal := a.cfg.Out, a.cfg.OutTerminal
	if a.document() {
		out, terminal = a.cfg.Err, a.cfg.ErrTerminal
	}
	return &screen{out: out}, view.LiveConfig{Style: view.Style{Colour: a.colour(terminal)}, Boxed: terminal}
}

// alreadyOver is all there is to see of an operation that had finished when it was asked for.
func (a *app) alreadyOver(op *pb.Operation) {
	scr, cfg := a.people()
	text := cfg.Style.OperationLine(op)
	if op.GetPhase() != pb.Operation_SUCCEEDED {
		text += view.NewLive(view.LiveConfig{Style: cfg.Style}).Result(op)
	}
	scr.put(text, "")
}

// live shows an operation until it ends. When the view ends first it says how to come back to it.
func (a *app) live(ctx context.Context, svc *services, op *pb.Operation, before *pb.Machine) (*pb.Operation, error) {
	scr, cfg := a.people()
	v := view.NewLive(cfg)
	scr.put(v.Header(op, before), "")
	final, err := follow.Operation(ctx, a.followConfig(svc, op, cfg.Boxed), func(it follow.Item) {
		text := render(v, it)
		scr.put(text, v.Status(a.now()))
	})
	if err != nil {
		scr.put("", "")
		return nil, a.left(op, err)
	}
	scr.put(v.Result(final), "")
	after, err := svc.machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: op.GetMachineId()})
	if err == nil {
		scr.put(v.After(before, after), "")
	} else {
		// The operation has ended and its result stands; only the look at the machine is missing.
		a.note("machine state after operation: not read: %s", errorText(err))
	}
	if scr.err != nil {
		return nil, scr.err
	}
	return final, nil
}

func (a *app) followConfig(svc *services, op *pb.Operation, terminal bool) follow.Config {
	cfg := follow.Config{
		Operations: svc.operations, OperationID: op.GetOperationId(), Clock: a.cfg.Clock, Drain: 3 * time.Second,
	}
	if terminal {
		cfg.Poll, cfg.Tick = 3*time.Second, time.Second
	}
	return cfg
}

func render(v *view.Live, it follow.Item) string {
	switch {
	case it.Event != nil:
		return v.Event(it.Event)
	case it.Log != nil:
		return v.Log(it.Log)
	case it.Polled != nil:
		v.Poll(it.Polled)
	case it.LogErr != nil:
		return v.NoLog(errorText(it.LogErr))
	case it.Lost:
		return v.Lost()
	case it.Back:
		return v.Back()
	}
	return ""
}

// left explains that an operation goes on without its view.
func (a *app) left(op *pb.Operation, err error) error {
	code := exitCode(err)
	if code == exitTimeout || code == exitInterrupted {
		a.note("%s goes on. To come back: ingot watch %s   To stop it: ingot cancel %s",
			op.GetOperationId(), op.GetOperationId(), op.GetOperationId())
	}
	if code == exitTimeout {
		return &exitError{code: exitTimeout, err: errors.New("timed out waiting for " + op.GetOperationId())}
	}
	return err
}

// pollEvery is how often the operations of a batch are looked at.
const pollEvery = time.Second

func (a *app) printLog(ctx context.Context, raw bool, cfg follow.LogConfig) error {
	cfg.Clock = a.cfg.Clock
	cfg.Lost = func() { a.note("! connection lost, retrying…") }
	return follow.Log(ctx, cfg, func(c *pb.LogChunk) error {
		if raw {
			return a.write(string(c.GetData()))
		}
		return a.stream(c, func() string { return a.logLines(c) }, c.GetOperationId())
	})
}

func (a *app) logLines(c *pb.LogChunk) string {
	var b strings.Builder
	for line := range strings.Lines(string(c.GetData())) {
		b.WriteString(a.style().LogLine(c, strings.TrimRight(line, "\r\n")))
	}
	return b.String()
}
