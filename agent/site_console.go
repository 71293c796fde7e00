package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// The limits of the captured serial console of one operation.
const (
	// consoleLinger goes on after the assignment has ended: the new system's first words are worth having.
	consoleLinger = 90 * time.Second
	consoleRetry  = 10 * time.Second
	// consoleFlush is how long lines are gathered into one event, consoleEvent how many bytes, and consoleMax bounds the
	// whole of an operation.
	consoleFlush = time.Second
	consoleEvent = 8 << 10
	consoleMax   = 512 << 10
)

// consoles capture the serial consoles of machines that are being installed into their operations' logs.
type consoles struct {
	// capture calls emit with each line until ctx ends; they hold no secrets.
	capture func(ctx context.Context, t provider.Target, emit func(line string)) error
	// keep puts a piece of an operation's log into the event buffer.
	keep  func(ctx context.Context, e *fleetv1.Event) error
	clock clock.Clock
	log   *slog.Logger

	mu      sync.Mutex
	running map[string]*capturing // by operation
	changed chan struct{}
	wanted  map[string]provider.Target
}

type capturing struct {
	end  context.CancelFunc
	over bool
}

func newConsoles(c *consoles) *consoles {
	c.running, c.changed = map[string]*capturing{}, make(chan struct{}, 1)
	return c
}

// follow sets the wanted operations: those whose machine boots the installer, and has a BMC.
func (c *consoles) follow(doc *fleetv1.SiteDocument) {
	wanted := consolesOf(doc)
	c.mu.Lock()
	c.wanted = wanted
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func consolesOf(doc *fleetv1.SiteDocument) map[string]provider.Target {
	byMachine := map[string]provider.Target{}
	for _, t := range bmcTargets(doc.GetBmcs()) {
		byMachine[t.MachineID] = t
	}
	out := map[string]provider.Target{}
	for _, a := range doc.GetAssignments() {
		t, has := byMachine[a.GetMachineId()]
		if has && a.GetOperationId() != "" && a.GetMode() != "disk" {
			t.MACs = a.GetMacAddresses()
			out[a.GetOperationId()] = t
		}
	}
	return out
}

// run captures until ctx ends.
func (c *consoles) run(ctx context.Context) error {
	group, _ := task.New(ctx)
	group.Go("follow", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-c.changed:
				c.adjust(ctx, group)
			}
		}
	})
	return group.Wait()
}

// adjust starts new captures, and lets ended ones linger.
func (c *consoles) adjust(ctx context.Context, group *task.Group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for operation, t := range c.wanted {
		if c.running[operation] != nil {
			continue
		}
		own, end := context.WithCancel(ctx)
		c.running[operation] = &capturing{end: end}
		group.Go("console of "+t.MachineID, func(context.Context) error {
			defer end()
			c.hold(own, operation, t)
			return nil
		})
	}
	for operation, r := range c.running {
		if _, still := c.wanted[operation]; still || r.over {
			continue
		}
		r.over = true
		group.Go("end of a console", func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case <-c.clock.After(consoleLinger):
			}
			r.end()
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.running, operation)
			return nil
		})
	}
}

// hold captures one console, again and again: a BMC drops such sessions when it pleases. A BMC that has none is left in
// peace.
func (c *consoles) hold(ctx context.Context, operation string, t provider.Target) {
	w := &consoleLog{c: c, operation: operation}
	for ctx.Err() == nil {
		err := w.capture(ctx, t)
		if errors.Is(err, effect.ErrUnsupported) || w.full() {
			return
		}
		if err != nil && ctx.Err() == nil {
			c.log.Debug("serial console not captured", "machine_id", t.MachineID, "operation_id", operation, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-c.clock.After(consoleRetry):
		}
	}
}

// consoleLog gathers lines into events.
type consoleLog struct {
	c         *consoles
	operation string

	mu   sync.Mutex
	buf  bytes.Buffer
	sent int
}

func (w *consoleLog) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent >= consoleMax
}

func (w *consoleLog) capture(ctx context.Context, t provider.Target) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	group, ctx := task.New(ctx)
	group.Go("gather", func(ctx context.Context) error {
		tick := w.c.clock.NewTicker(consoleFlush)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C():
				w.flush(ctx)
			}
		}
	})
	group.Go("capture", func(ctx context.Context) error {
		defer end()
		return w.c.capture(ctx, t, func(line string) { w.line(ctx, line, end) })
	})
	err := group.Wait()
	w.flush(context.WithoutCancel(ctx))
	return err
}

func (w *consoleLog) line(ctx context.Context, line string, end context.CancelFunc) {
	w.mu.Lock()
	w.buf.WriteString(line)
	w.buf.WriteByte('\n')
	size := w.buf.Len()
	w.mu.Unlock()
	if size >= consoleEvent {
		w.flush(ctx)
	}
	if w.full() {
		end()
	}
}

func (w *consoleLog) flush(ctx context.Context) {
	w.mu.Lock()
	data := bytes.Clone(w.buf.Bytes())
	w.buf.Reset()
	w.sent += len(data)
	w.mu.Unlock()
	if len(data) == 0 {
		return
	}
	err := w.c.keep(ctx, &fleetv1.Event{Body: &fleetv1.Event_Log{Log: &fleetv1.LogLines{
		OperationId: w.operation, Stream: "console", Data: data,
	}}})
	if err != nil && ctx.Err() == nil {
		w.c.log.Warn("part of a serial console lost", "operation_id", w.operation, "error", err)
	}
}
