package lldp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/task"
)

// Round is how long to listen: most neighbours send every 30 seconds (802.1AB, 9.2.5.7, msgTxInterval).
const Round = 32 * time.Second

const (
	// MostNeighbours is how many neighbours of one interface are kept. A link has one; a hub may have more.
	MostNeighbours = 8
	// mostFrames ends the listening on an interface: neighbours that mean well send two in a round.
	mostFrames = 1000
)

// groups are the addresses that LLDP frames go to (802.1AB, table 7-1).
var groups = [][6]byte{
	{0x01, 0x80, 0xc2, 0, 0, 0x0e}, {0x01, 0x80, 0xc2, 0, 0, 0x03}, {0x01, 0x80, 0xc2, 0, 0, 0x00},
}

// Heard is what one round of listening found.
type Heard struct {
	// Neighbours by interface, sorted. Interfaces that could not be listened on are not among them.
	Neighbours map[string][]Neighbour
	// Faults say by interface why it could not be listened on, or what was left out.
	Faults map[string]string
}

// Listen hears on interfaces for a time, or until ctx ends. It needs CAP_NET_RAW.
func Listen(ctx context.Context, interfaces []string, d time.Duration) Heard {
	out := Heard{Neighbours: map[string][]Neighbour{}, Faults: map[string]string{}}
	var mu sync.Mutex
	group, _ := task.New(ctx)
	until := time.Now().Add(d)
	for _, name := range interfaces {
		group.Go("lldp "+name, func(ctx context.Context) error {
			t, err := listen(ctx, name, until)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.Faults[name] = err.Error()
				return nil
			}
			out.Neighbours[name] = t.neighbours()
			if fault := t.fault(); fault != "" {
				out.Faults[name] = fault
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil { // a panic
		out.Faults[""] = err.Error()
	}
	return out
}

// listen hears on one interface.
func listen(ctx context.Context, name string, until time.Time) (t *table, err error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, errors.New("no such interface")
	}
	conn, err := packet.Listen(ifi, packet.Raw, EtherType, nil)
	if errors.Is(err, os.ErrPermission) {
		return nil, errors.New("not heard without CAP_NET_RAW")
	}
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() { _ = conn.Close() }() // nothing was written to it
	if err := join(conn, ifi.Index); err != nil {
		return nil, fmt.Errorf("join the groups of LLDP: %w", err)
	}
	// the read below returns the error
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := conn.SetReadDeadline(until); err != nil {
		return nil, fmt.Errorf("bound: %w", err)
	}
	t = &table{}
	for frame := make([]byte, 2048); t.frames < mostFrames && ctx.Err() == nil; {
		n, _, err := conn.ReadFrom(frame)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return t, nil
		case errors.Is(err, unix.ENETDOWN):
			return nil, errors.New("the interface is down")
		case err != nil:
			return nil, fmt.Errorf("read: %w", err)
		}
		t.take(frame[:n])
	}
	return t, nil
}

// join lets the card pass the frames up (packet(7), PACKET_ADD_MEMBERSHIP).
func join(conn *packet.Conn, index int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var fault error
	err = raw.Control(func(fd uintptr) {
		for _, g := range groups {
			m := &unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_MULTICAST, Alen: 6}
			copy(m.Address[:], g[:])
			fault = errors.Join(fault, unix.SetsockoptPacketMreq(int(fd), unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, m))
		}
	})
	return errors.Join(err, fault)
}

// table is what was heard on one interface. Its size has a bound, whatever is sent.
type table struct {
	byKey             map[string]Neighbour
	frames, malformed int
	full              bool
}

func (t *table) take(frame []byte) {
	t.frames++
	n, leaving, err := Parse(frame)
	if err != nil {
		t.malformed++
		return
	}
	_, known := t.byKey[n.key()]
	switch {
	case leaving:
		delete(t.byKey, n.key())
		return
	case !known && len(t.byKey) == MostNeighbours:
		t.full = true
		return
	case t.byKey == nil:
		t.byKey = map[string]Neighbour{}
	}
	t.byKey[n.key()] = n
}

func (t *table) neighbours() []Neighbour {
	out := make([]Neighbour, 0, len(t.byKey))
	for _, n := range t.byKey {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b Neighbour) int { return cmp.Compare(a.key(), b.key()) })
	return out
}

func (t *table) fault() string {
	switch {
	case t.frames == mostFrames:
		return fmt.Sprintf("%d frames came; the rest was not read", mostFrames)
	case t.full:
		return fmt.Sprintf("more than %d neighbours; the rest was left out", MostNeighbours)
	case t.malformed > 0:
		return fmt.Sprintf("%d frames were malformed", t.malformed)
	}
	return ""
}
