package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in a frame with Ethernet, IPv4 without options, UDP and DHCP.
const (
	atSource  = 6
	atPayload = 14 + 20 + 8
	atXID     = atPayload + 4
	atYours   = atPayload + 16
	atCard    = atPayload + 28
	atOptions = atPayload + 240
	frameLen  = atPayload + 300
)

// machine is one that wants an address.
type machine struct {
	began, sent time.Time
	frame       []byte
}

// loader keeps a window of machines busy.
type loader struct {
	file     *os.File
	waiting  map[uint32]*machine
	next     uint32
	times    []time.Duration
	repeated int
	refused  int
}

// patience is how long a machine waits before it asks again.
const patience = time.Second

// load waits for the server to answer one machine, then measures.
func load(ctx context.Context, o options) (result, error) {
	file, err := openDevice(clientDevice)
	if err != nil {
		return result{}, err
	}
	defer file.Close()
	l := &loader{file: file, waiting: map[uint32]*machine{}}
	if err := l.warmUp(ctx); err != nil {
		return result{}, err
	}
	start := time.Now()
	if err := l.fill(o.window, start); err != nil {
		return result{}, err
	}
	end := start.Add(o.duration)
	for now := start; now.Before(end); now = time.Now() {
		if err := l.step(o.window, now); err != nil {
			return result{}, err
		}
		if ctx.Err() != nil {
			return result{}, ctx.Err()
		}
	}
	return l.result(time.Since(start))
}

// warmUp is one machine, which asks until the server is there.
func (l *loader) warmUp(ctx context.Context) error {
	deadline := time.Now().Add(20 * time.Second)
	if err := l.fill(1, time.Now()); err != nil {
		return err
	}
	for len(l.times) == 0 {
		if err := l.step(0, time.Now()); err != nil {
			return err
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return errors.Join(ctx.Err(), errors.New("the server does not answer"))
		}
	}
	l.times, l.repeated = nil, 0
	return nil
}

func (l *loader) result(took time.Duration) (result, error) {
	if len(l.times) == 0 {
		return result{}, errors.New("no machine got an address")
	}
	slices.Sort(l.times)
	at := func(share float64) time.Duration {
		return l.times[min(int(share*float64(len(l.times))), len(l.times)-1)]
	}
	return result{done: len(l.times), took: took, p50: at(0.5), p99: at(0.99), repeated: l.repeated, refused: l.refused},
		nil
}

// fill starts machines until so many wait.
func (l *loader) fill(window int, now time.Time) error {
	for len(l.waiting) < window {
		l.next++
		m := &machine{began: now, frame: discover(l.next)}
		l.waiting[l.next] = m
		if err := l.send(m, now); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) send(m *machine, now time.Time) error {
	m.sent = now
	if _, err := l.file.Write(m.frame); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// step reads what has come, at most for a tenth of a second, and keeps the window full.
func (l *loader) step(window int, now time.Time) error {
	if err := l.file.SetReadDeadline(now.Add(100 * time.Millisecond)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	var b [1600]byte
	for range 256 {
		n, err := l.file.Read(b[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if err := l.hear(b[:n], time.Now()); err != nil {
			return err
		}
		if err := l.fill(window, time.Now()); err != nil {
			return err
		}
	}
	return l.again(time.Now())
}

// again repeats what was not answered.
func (l *loader) again(now time.Time) error {
	for _, m := range l.waiting {
		if now.Sub(m.sent) >= patience {
			l.repeated++
			if err := l.send(m, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// hear takes the next step of the machine that a frame is for.
func (l *loader) hear(b []byte, now time.Time) error {
	if len(b) < atOptions+3 || b[atPayload] != 2 {
		return nil
	}
	id := binary.BigEndian.Uint32(b[atXID:])
	m, ok := l.waiting[id]
	if !ok {
		return nil
	}
	switch kind, server := answer(b[atOptions:]); kind {
	case 2:
		m.frame = request(id, b[atYours:atYours+4], server)
		return l.send(m, now)
	case 5:
		l.times = append(l.times, now.Sub(m.began))
		delete(l.waiting, id)
	case 6:
		l.refused++
		delete(l.waiting, id)
	}
	return nil
}

// answer finds the message type and the server in the options.
func answer(b []byte) (kind byte, server []byte) {
	for len(b) > 2 && b[0] != 255 {
		if b[0] == 0 {
			b = b[1:]
			continue
		}
		if len(b) < 2+int(b[1]) {
			break
		}
		switch value := b[2 : 2+b[1]]; b[0] {
		case 53:
			kind = value[0]
		case 54:
			server = value
		}
		b = b[2+b[1]:]
	}
	return kind, server
}

func discover(id uint32) []byte { return frame(id, []byte{53, 1, 1, 55, 3, 1, 3, 6, 255}) }

func request(id uint32, address, server []byte) []byte {
	options := append([]byte{53, 1, 3, 50, 4}, address...)
	options = append(append(options, 54, 4), server...)
	return frame(id, append(options, 55, 3, 1, 3, 6, 255))
}

// frame is a broadcast of a client with a card of its own.
func frame(id uint32, options []byte) []byte {
	b := make([]byte, frameLen)
	copy(b, []byte{255, 255, 255, 255, 255, 255, 2, 0xbe})
	binary.BigEndian.PutUint32(b[atSource+2:], id)
	copy(b[12:], []byte{8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, 68, 0, 67})
	binary.BigEndian.PutUint16(b[16:], frameLen-14)
	var sum uint32
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	binary.BigEndian.PutUint16(b[24:], ^uint16(sum>>16+sum&0xffff))
	binary.BigEndian.PutUint16(b[38:], frameLen-34)
	copy(b[atPayload:], []byte{1, 1, 6, 0})
	binary.BigEndian.PutUint32(b[atXID:], id)
	b[atPayload+10] = 0x80 // broadcast the answer
	copy(b[atCard:], b[atSource:atSource+6])
	copy(b[atOptions-4:], []byte{99, 130, 83, 99})
	copy(b[atOptions:], options)
	return b
}

// openDevice is a packet socket that gets what is for port 68 of UDP.
func openDevice(name string) (*os.File, error) {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("find device: %w", err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 36, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 68, SkipFalse: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	})
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	err = errors.Join(err,
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8, Ifindex: device.Index}))
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}
