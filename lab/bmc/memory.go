package bmc

import (
	"bytes"
	"context"
	"io"
	"sync"
)

// Memory is a chassis with nothing in it: it remembers how it was switched. The zero value is off and has no name.
type Memory struct {
	Info About
	// Stubborn ignores the power button, as a system that hangs does.
	Stubborn bool

	mu       sync.Mutex
	on       bool
	once     Boot
	booted   []Boot
	switched []Switch
	attached map[*line]struct{}
	medium   string
}

// Insert puts an image into the drive.
func (m *Memory) Insert(_ context.Context, image string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.medium = image
	return nil
}

// Eject takes it out.
func (m *Memory) Eject(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.medium = ""
	return nil
}

// Medium is the image in the drive; empty for none.
func (m *Memory) Medium() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.medium
}

var _ Chassis = (*Memory)(nil)

// PowerState is as it was switched.
func (m *Memory) PowerState(context.Context) (Power, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.on {
		return On, nil
	}
	return Off, nil
}

// SetPower switches at once. Going on consumes the device of the next boot.
func (m *Memory) SetPower(_ context.Context, s Switch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.switched = append(m.switched, s)
	switch {
	case s == PowerOn && !m.on:
		m.on = true
		m.booted = append(m.booted, m.once)
		m.once = BootNone
	case s == ForceOff, s == SoftOff && !m.Stubborn:
		m.on = false
	}
	return nil
}

// BootOnce is what the next boot will be from.
func (m *Memory) BootOnce(context.Context) (Boot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.once, nil
}

// SetBootOnce chooses it.
func (m *Memory) SetBootOnce(_ context.Context, b Boot) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.once = b
	return nil
}

// About is Info.
func (m *Memory) About() About { return m.Info }

// Switched returns every switch since the start, those without effect too.
func (m *Memory) Switched() []Switch {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Switch(nil), m.switched...)
}

// Booted returns the device of every boot since the start.
func (m *Memory) Booted() []Boot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Boot(nil), m.booted...)
}

// Print writes to the serial port, as the machine would.
func (m *Memory) Print(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.attached {
		l.put(text)
	}
}

// Attached returns the number of listeners on the serial port.
func (m *Memory) Attached() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.attached)
}

// Serial attaches a listener. Data that is written to it is dropped: there is no system to read it.
func (m *Memory) Serial(context.Context) (io.ReadWriteCloser, error) {
	l := &line{chassis: m}
	l.cond = sync.NewCond(&l.mu)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.attached == nil {
		m.attached = map[*line]struct{}{}
	}
	m.attached[l] = struct{}{}
	return l, nil
}

// line is one listener. It holds what it has not read yet.
type line struct {
	chassis *Memory
	mu      sync.Mutex
	cond    *sync.Cond
	buf     bytes.Buffer
	closed  bool
}

func (l *line) put(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.WriteString(text)
	l.cond.Broadcast()
}

func (l *line) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.buf.Len() == 0 && !l.closed {
		l.cond.Wait()
	}
	return l.buf.Read(p) // io.EOF once it is closed and empty
}

func (l *line) Write(p []byte) (int, error) { return len(p), nil }

func (l *line) Close() error {
	l.chassis.mu.Lock()
	delete(l.chassis.attached, l)
	l.chassis.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.cond.Broadcast()
	return nil
}
