package command

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

// Screen writes lines for people, with at most one status line below them that is redrawn in place.
type Screen struct {
	Out    io.Writer
	status string
	Err    error
}

const eraseLine = "\r\x1b[K"

// Put writes text above the status line and draws status anew.
func (s *Screen) Put(text, status string) {
	if text == "" && status == s.status {
		return
	}
	if s.status != "" {
		text = eraseLine + text
	}
	s.status = status
	if _, err := io.WriteString(s.Out, text+status); err != nil && s.Err == nil {
		s.Err = err
	}
}

// People returns the screen for what people read while a command runs: Out, or Err when Out takes a document.
func (a *App) People() (*Screen, view.LiveConfig) {
	out, terminal := a.Config.Out, a.Config.OutTerminal
	if a.Document() {
		out, terminal = a.Config.Err, a.Config.ErrTerminal
	}
	return &Screen{Out: out}, view.LiveConfig{Style: a.style(terminal), Boxed: terminal}
}

// alreadyOver is all there is to see of an operation that had finished when it was asked for.
func (a *App) alreadyOver(op *pb.Operation) {
	scr, cfg := a.People()
	text := cfg.Style.OperationLine(op)
	if op.GetPhase() != pb.Operation_SUCCEEDED {
		text += view.NewLive(view.LiveConfig{Style: cfg.Style}).Result(op)
	}
	scr.Put(text, "")
}

// Live shows an operation until it ends. When the view ends first it prints how to resume it.
func (a *App) Live(ctx context.Context, svc *Services, op *pb.Operation, before *pb.Machine) (*pb.Operation, error) {
	scr, cfg := a.People()
	v := view.NewLive(cfg)
	scr.Put(v.Header(op, before), "")
	final, err := follow.Operation(ctx, a.followConfig(svc, op, cfg.Boxed), func(it follow.Item) {
		text := render(v, it)
		scr.Put(text, v.Status(a.Now()))
	})
	if err != nil {
		scr.Put("", "")
		return nil, a.left(op, err)
	}
	scr.Put(v.Result(final), "")
	after, err := svc.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: op.GetMachineId()})
	if err == nil {
		scr.Put(v.After(before, after), "")
	} else {
		// The operation has ended and its result stands; only the look at the machine is missing.
		a.Note("machine state after operation: not read: %s", ErrorText(err))
	}
	if scr.Err != nil {
		return nil, scr.Err
	}
	return final, nil
}

func (a *App) followConfig(svc *Services, op *pb.Operation, terminal bool) follow.Config {
	cfg := follow.Config{
		Operations: svc.Operations, OperationID: op.GetOperationId(), Clock: a.Config.Clock, Drain: 3 * time.Second,
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
		return v.NoLog(ErrorText(it.LogErr))
	case it.Lost:
		return v.Lost()
	case it.Back:
		return v.Back()
	}
	return ""
}

// left explains that an operation goes on without its view.
func (a *App) left(op *pb.Operation, err error) error {
	code := ExitCode(err)
	if code == exitTimeout || code == ExitInterrupted {
		a.Note("%s goes on. To come back: ingot watch %s   To stop it: ingot cancel %s",
			op.GetOperationId(), op.GetOperationId(), op.GetOperationId())
	}
	if code == exitTimeout {
		return &ExitError{Code: exitTimeout, Err: errors.New("timed out waiting for " + op.GetOperationId())}
	}
	return err
}

// PollEvery is how often the operations of a batch are looked at.
const PollEvery = time.Second

// PrintLog follows a log and prints it, raw or a line each.
func (a *App) PrintLog(ctx context.Context, raw bool, cfg follow.LogConfig) error {
	cfg.Clock = a.Config.Clock
	cfg.Lost = func() { a.Note("! connection lost, retrying…") }
	return follow.Log(ctx, cfg, func(c *pb.LogChunk) error {
		if raw {
			return a.WriteFile(c.GetData())
		}
		return a.Stream(c, func() string { return a.logLines(c) }, c.GetOperationId())
	})
}

func (a *App) logLines(c *pb.LogChunk) string {
	var b strings.Builder
	for line := range strings.Lines(string(c.GetData())) {
		b.WriteString(a.Style().LogLine(c, strings.TrimRight(line, "\r\n")))
	}
	return b.String()
}
