package chassis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// console is the cable of the serial port. What the machine writes goes to the log and to everybody who listens.
type console struct {
	group *task.Group

	mu     sync.Mutex
	log    *os.File
	size   int64
	stamps []stamp
	port   net.Conn // nil while no machine is plugged in
	lines  map[*line]struct{}
}

// stamp is the time at which the log had grown beyond an offset.
type stamp struct {
	at     time.Time
	offset int64
}

func newConsole(path string) (*console, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open serial log: %w", err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open serial log: %w", err), f.Close())
	}
	group, _ := task.New(context.Background())
	return &console{group: group, log: f, size: size, lines: map[*line]struct{}{}}, nil
}

// plug makes a new cable, and returns the machine's end.
func (c *console) plug() (*os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make serial cable: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "console"), os.NewFile(uintptr(pair[1]), "serial port")
	conn, err := net.FileConn(ours)
	if err = errors.Join(err, ours.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("make serial cable: %w", err), theirs.Close())
	}
	c.mu.Lock()
	c.port = conn
	c.mu.Unlock()
	c.group.Go("console", func(context.Context) error { return c.read(conn) })
	return theirs, nil
}

// read ends with the machine.
func (c *console) read(conn net.Conn) error {
	defer conn.Close()
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if err := c.deliver(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET):
			return nil
		case err != nil:
			return fmt.Errorf("read serial port: %w", err)
		}
	}
}

func (c *console) deliver(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stamps = append(c.stamps, stamp{clock.Real().Now(), c.size})
	c.size += int64(len(p))
	for l := range c.lines {
		l.put(bytes.Clone(p))
	}
	_, err := c.log.Write(p)
	return err
}

func (c *console) send(p []byte) (int, error) {
	c.mu.Lock()
	port := c.port
	c.mu.Unlock()
	if port == nil {
		return len(p), nil // no machine is attached
	}
	if _, err := port.Write(p); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.EPIPE) {
		return 0, err
	}
	return len(p), nil
}

func (c *console) close() error {
	c.mu.Lock()
	for l := range c.lines {
		l.end()
	}
	port := c.port
	c.mu.Unlock()
	if port != nil {
		_ = port.Close() // the machine's end may have closed it
	}
	return errors.Join(c.group.Wait(), c.log.Close())
}

// backlog is how many pieces a listener may lag behind before it loses some: a listener must not stop the machine.
const backlog = 1024

// line is one listener.
type line struct {
	console *console
	pieces  chan []byte
	rest    []byte
	once    sync.Once
	over    chan struct{}
}

// Serial attaches to the first serial port. Everybody who is attached reads and may write.
func (c *Chassis) Serial(context.Context) (io.ReadWriteCloser, error) {
	l := &line{console: c.console, pieces: make(chan []byte, backlog), over: make(chan struct{})}
	c.console.mu.Lock()
	defer c.console.mu.Unlock()
	c.console.lines[l] = struct{}{}
	return l, nil
}

func (l *line) put(p []byte) {
	select {
	case l.pieces <- p:
	default:
	}
}

func (l *line) end() { l.once.Do(func() { close(l.over) }) }

// Read waits until the machine writes, or Close.
func (l *line) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		select {
		case l.rest = <-l.pieces:
		case <-l.over:
			return 0, io.EOF
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// Write types. A machine that is off doesn't receive it.
func (l *line) Write(p []byte) (int, error) { return l.console.send(p) }

// Close detaches.
func (l *line) Close() error {
	l.end()
	l.console.mu.Lock()
	defer l.console.mu.Unlock()
	delete(l.console.lines, l)
	return nil
}
