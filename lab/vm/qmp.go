package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/ingot-metal/ingot/internal/task"
)

// Monitor is a connection to a machine's QMP.
type Monitor struct {
	conn   net.Conn
	events io.WriteCloser

	mu      sync.Mutex
	lastID  int
	waiting map[string]chan message
	seen    []Event
	changed chan struct{} // closed and replaced when an event arrives or reading ends
	ended   error
}

type message struct {
	Greeting json.RawMessage `json:"QMP"`
	ID       string          `json:"id"`
	Return   json.RawMessage `json:"return"`
	Error    *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event
}

// ErrClosed is returned when the machine's QMP is gone, and most likely the machine with it.
var ErrClosed = errors.New("QMP connection closed")

// Dial connects to the second QMP socket of the machine that runs in dir, from this or any process. The caller
// closes the Monitor.
func Dial(ctx context.Context, dir string) (*Monitor, error) {
	m, err := dial(filepath.Join(dir, ctlSocket), os.DevNull)
	if err != nil {
		return nil, err
	}
	task.Background("qmp", func() {
		// The end of the connection is reported to waiting calls.
		_ = m.read()
	})
	if err := m.handshake(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func dial(socket, eventsPath string) (*Monitor, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to QMP: %w", err)
	}
	events, err := os.OpenFile(eventsPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open event log: %w", err), conn.Close())
	}
	return &Monitor{
		conn: conn, events: events, waiting: map[string]chan message{}, changed: make(chan struct{}),
	}, nil
}

// listen makes a Unix socket to hand over. A socket without a listener is replaced.
func listen(path string) (*os.File, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(fmt.Errorf("a machine is running already: %s answers", path), conn.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	return f, errors.Join(err, l.Close())
}

// Close ends the connection; the machine goes on.
func (m *Monitor) Close() error { return ignoreClosed(m.conn.Close()) }

// read delivers answers and events until the connection ends, which is how it always ends.
func (m *Monitor) read() error {
	dec := json.NewDecoder(m.conn)
	var err error
	for err == nil {
		var msg message
		if err = dec.Decode(&msg); err == nil {
			err = m.deliver(msg)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = fmt.Errorf("%w: %w", ErrClosed, err)
	m.wake()
	for _, ch := range m.waiting {
		close(ch)
	}
	m.waiting = nil
	return errors.Join(m.events.Close(), ignoreClosed(m.conn.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (m *Monitor) deliver(msg message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case msg.Event.Name != "":
		m.seen = append(m.seen, msg.Event)
		m.wake()
		return json.NewEncoder(m.events).Encode(msg.Event)
	case m.waiting[msg.ID] != nil:
		m.waiting[msg.ID] <- msg
		delete(m.waiting, msg.ID)
	}
	return nil
}

func (m *Monitor) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// handshake leaves the negotiation mode that every connection starts in.
func (m *Monitor) handshake(ctx context.Context) error {
	_, err := m.execute(ctx, "qmp_capabilities", nil)
	return err
}

func (m *Monitor) execute(ctx context.Context, command string, args any) (json.RawMessage, error) {
	answer, err := m.send(command, args)
	if err != nil {
		return nil, fmt.Errorf("send QMP %s: %w", command, err)
	}
	select {
	case msg, ok := <-answer:
		switch {
		case !ok:
			return nil, fmt.Errorf("run QMP %s: %w", command, m.endError())
		case msg.Error != nil:
			return nil, fmt.Errorf("run QMP %s: %s (%s)", command, msg.Error.Desc, msg.Error.Class)
		}
		return msg.Return, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("run QMP %s: %w", command, ctx.Err())
	}
}

func (m *Monitor) send(command string, args any) (<-chan message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended != nil {
		return nil, m.ended
	}
	m.lastID++
	id := strconv.Itoa(m.lastID)
	answer := make(chan message, 1)
	m.waiting[id] = answer
	return answer, json.NewEncoder(m.conn).Encode(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        string `json:"id"`
	}{command, args, id})
}

func (m *Monitor) endError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended
}

// Events are those since the connection was made, in order.
func (m *Monitor) Events() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen)
}

// Reboots is the number of times that the machine has been reset since the connection was made, whatever the cause.
func (m *Monitor) Reboots() int { return countReboots(m.Events()) }

// WaitReboots returns when Reboots is at least n.
func (m *Monitor) WaitReboots(ctx context.Context, n int) error {
	return m.waitEvents(ctx, func(events []Event) bool { return countReboots(events) >= n })
}

// WaitEvent returns when an event with the name has come.
func (m *Monitor) WaitEvent(ctx context.Context, name string) error {
	return m.waitEvents(ctx, func(events []Event) bool {
		return slices.ContainsFunc(events, func(e Event) bool { return e.Name == name })
	})
}

// EventsAfter returns the events after the first n as soon as there are any.
func (m *Monitor) EventsAfter(ctx context.Context, n int) ([]Event, error) {
	var after []Event
	err := m.waitEvents(ctx, func(events []Event) bool {
		after = slices.Clone(events[min(n, len(events)):])
		return len(after) > 0
	})
	return after, err
}

func (m *Monitor) waitEvents(ctx context.Context, ok func([]Event) bool) error {
	for {
		m.mu.Lock()
		seen, changed, ended := m.seen, m.changed, m.ended
		m.mu.Unlock()
		switch {
		case ok(seen):
			return nil
		case ended != nil:
			return fmt.Errorf("wait for QMP event: %w", ended)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for QMP event: %w", ctx.Err())
		}
	}
}
