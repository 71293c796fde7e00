package metal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/bmc"
)

// ControlSocket is the file in a lab's directory by which others control it: one JSON request a connection, one JSON
// answer; a console goes on as bytes in both directions.
const ControlSocket = "control.sock"

// Request is one.
type Request struct {
	// Do is "status", "power", "console" or "down".
	Do      string `json:"do"`
	Machine string `json:"machine,omitempty"`
	// Value is "on", "off", "soft", "cut" or "reset" for "power".
	Value string `json:"value,omitempty"`
}

// Answer is one.
type Answer struct {
	Error  string  `json:"error,omitempty"`
	Status *Status `json:"status,omitempty"`
}

// Status is a lab as it is now.
type Status struct {
	PID       int    `json:"pid"`
	Frontpage string `json:"frontpage"`
	CAFile    string `json:"ca_file"`
	TokenFile string `json:"token_file"`
	// Site and Rack are files that stand for network namespaces: that of the site agent, and that of the switch.
	Site     string          `json:"site_network"`
	Rack     string          `json:"rack_network"`
	Machines []MachineStatus `json:"machines"`
}

// MachineStatus is a machine as its hardware is now.
type MachineStatus struct {
	Name     string `json:"name"`
	Firmware string `json:"firmware"`
	MAC      string `json:"mac"`
	BMC      string `json:"bmc"`
	Power    string `json:"power"`
	PowerOns int    `json:"power_ons"`
	Resets   int    `json:"resets"`
	Serial   string `json:"serial_log"`
}

// Serve answers requests until one of them is "down" or ctx ends. It calls listening as soon as it can be asked.
func (l *Lab) Serve(ctx context.Context, listening func()) error {
	path := l.path(ControlSocket)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listen for control: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(err, listener.Close())
	}
	listening()
	ctx, down := context.WithCancel(ctx)
	defer down()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })() // Accept returns the error
	group, _ := task.New(ctx)
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return group.Wait()
		}
		if err != nil {
			return errors.Join(fmt.Errorf("accept control: %w", err), group.Wait())
		}
		group.Go("control", func(ctx context.Context) error {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // ends a console
			l.control(ctx, conn, down)
			return nil
		})
	}
}

func (l *Lab) control(ctx context.Context, conn net.Conn, down func()) {
	dec := json.NewDecoder(conn)
	var req Request
	if err := dec.Decode(&req); err != nil {
		return // the error has no reader
	}
	var answer Answer
	err := l.do(ctx, req, &answer)
	if err != nil {
		answer.Error = err.Error()
	}
	if json.NewEncoder(conn).Encode(answer) != nil || err != nil {
		return
	}
	switch req.Do {
	case "down":
		down()
	case "console":
		l.attach(ctx, conn, io.MultiReader(dec.Buffered(), conn), req.Machine)
	}
}

func (l *Lab) do(ctx context.Context, req Request, answer *Answer) (err error) {
	switch req.Do {
	case "down":
		return nil
	case "status":
		answer.Status, err = l.Status(ctx)
		return err
	case "console":
		_, err := l.Machine(req.Machine)
		return err
	case "power":
		m, err := l.Machine(req.Machine)
		if err != nil {
			return err
		}
		return m.power(ctx, req.Value)
	default:
		return fmt.Errorf("unknown request %q", req.Do)
	}
}

func (m *Machine) power(ctx context.Context, value string) error {
	switch value {
	case "on":
		return m.SetPower(ctx, bmc.PowerOn)
	case "off":
		return m.SetPower(ctx, bmc.ForceOff)
	case "soft":
		return m.SetPower(ctx, bmc.SoftOff)
	case "cut":
		return m.PullPlug()
	case "reset":
		return m.Reset(ctx)
	default:
		return fmt.Errorf("power can be switched on, off, soft, cut or reset, not %q", value)
	}
}

// attach ends when either side does.
func (l *Lab) attach(ctx context.Context, to io.Writer, typed io.Reader, name string) {
	m, err := l.Machine(name)
	if err != nil {
		return
	}
	line, err := m.Serial(ctx)
	if err != nil {
		return
	}
	group, _ := task.New(ctx)
	group.Go("typed", func(context.Context) error {
		_, err := io.Copy(line, typed)
		return errors.Join(err, line.Close())
	})
	group.Go("said", func(context.Context) error {
		_, err := io.Copy(to, line)
		return err
	})
	_ = group.Wait() // the one who typed sees the connection go
}

// Status returns the state of all parts.
func (l *Lab) Status(ctx context.Context) (*Status, error) {
	s := &Status{
		PID: os.Getpid(), Frontpage: l.reach.Frontpage, CAFile: l.reach.CAFile, TokenFile: l.reach.TokenFile,
		Site: l.ns.Path(), Rack: l.rack.Path(),
	}
	for _, m := range l.Machines() {
		power, err := m.PowerState(ctx)
		if err != nil {
			return nil, err
		}
		resets, err := m.Resets()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		s.Machines = append(s.Machines, MachineStatus{
			Name: m.Name(), Firmware: string(m.cfg.Firmware), MAC: m.About().MACs[0], BMC: m.Endpoint(), Power: string(power),
			PowerOns: m.PowerOns(), Resets: resets, Serial: m.SerialPath(),
		})
	}
	return s, nil
}

const askLimit = 30 * time.Second

// Ask sends one request to the lab that runs in a directory. The connection is the caller's to close; for a console it
// carries the bytes.
func Ask(ctx context.Context, dir string, req Request) (Answer, net.Conn, error) {
	var answer Answer
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", dir+"/"+ControlSocket)
	if err != nil {
		return answer, nil, fmt.Errorf("find a running lab in %s: %w", dir, err)
	}
	deadline := time.Now().Add(askLimit)
	err = errors.Join(conn.SetReadDeadline(deadline), json.NewEncoder(conn).Encode(req), readLine(conn, &answer),
		conn.SetReadDeadline(time.Time{}))
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	if err != nil {
		return answer, nil, errors.Join(err, conn.Close())
	}
	return answer, conn, nil
}

// readLine reads no further than the answer: what follows is a console's.
func readLine(conn io.Reader, answer *Answer) error {
	var line []byte
	for one := make([]byte, 1); len(line) == 0 || line[len(line)-1] != '\n'; {
		if _, err := conn.Read(one); err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		line = append(line, one[0])
	}
	return json.Unmarshal(line, answer)
}
