package bmc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/ingot-metal/ingot/internal/task"
)

// ControlCommand is the first argument by which a program knows that it is to call ChassisControl.
const ControlCommand = "chassis-control"

// ChassisControl is what ipmi_sim runs for everything that it wants of the chassis, as
// <helper> <socket> <controller address> get|set|check <names and values>. It hands the words to the service and
// prints the answer.
func ChassisControl(args []string, out io.Writer) error {
	if len(args) < 3 {
		return errors.New("chassis-control: a socket, an address and a request are needed")
	}
	conn, err := net.Dial("unix", args[0])
	if err != nil {
		return fmt.Errorf("reach the machine: %w", err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, strings.Join(args[2:], " ")); err != nil {
		return fmt.Errorf("ask the machine: %w", err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return fmt.Errorf("read the machine's answer: %w", err)
	}
	text, ok := strings.CutPrefix(string(answer), "ok\n")
	if !ok {
		return fmt.Errorf("the machine says: %s", strings.TrimSpace(string(answer)))
	}
	_, err = io.WriteString(out, text)
	return err
}

// MainIfControl is for the TestMain of tests that start an IPMI service: it does the work of the helper, and ends the
// process, when this process was started as one.
func MainIfControl() {
	if len(os.Args) < 2 || os.Args[1] != ControlCommand {
		return
	}
	if err := ChassisControl(os.Args[2:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// control answers the helper.
type control struct {
	chassis  Chassis
	listener net.Listener
	lie      atomic.Bool
}

func serveControl(ctx context.Context, group *task.Group, c Chassis, path string) (*control, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for chassis control: %w", err)
	}
	s := &control{chassis: c, listener: l}
	group.Go("chassis control", func(ctx context.Context) error {
		for {
			conn, err := l.Accept()
			if err != nil {
				return nil //nolint:nilerr // it was closed
			}
			group.Go("chassis control request", func(context.Context) error { s.serve(ctx, conn); return nil })
		}
	})
	return s, nil
}

func (s *control) close() { s.listener.Close() }

func (s *control) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return
	}
	answer, err := s.request(ctx, strings.Fields(line))
	if err != nil {
		fmt.Fprintln(conn, err)
		return
	}
	fmt.Fprint(conn, "ok\n", answer)
}

// request does one line, such as "get power boot" or "set boot pxe".
func (s *control) request(ctx context.Context, words []string) (string, error) {
	if len(words) < 2 {
		return "", errors.New("an operation and a name are needed")
	}
	var answer strings.Builder
	op, rest := words[0], words[1:]
	for len(rest) > 0 {
		if op == "get" {
			value, err := s.get(ctx, rest[0])
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&answer, "%s:%s\n", rest[0], value)
			rest = rest[1:]
			continue
		}
		if len(rest) < 2 {
			return "", fmt.Errorf("%s has no value", rest[0])
		}
		if op == "set" && !s.lie.Load() {
			if err := s.set(ctx, rest[0], rest[1]); err != nil {
				return "", err
			}
		}
		if rest = rest[2:]; words[1] == "identify" {
			rest = nil // it has a second value
		}
	}
	return answer.String(), nil
}

// ipmiBoots are ipmi_sim's words.
var ipmiBoots = map[string]Boot{"none": BootNone, "pxe": BootPXE, "default": BootDisk, "cdrom": BootMedia}

func (s *control) get(ctx context.Context, name string) (string, error) {
	switch name {
	case "power":
		power, err := s.chassis.PowerState(ctx)
		if power == On {
			return "1", err
		}
		return "0", err
	case "boot":
		once, err := s.chassis.BootOnce(ctx)
		for word, boot := range ipmiBoots {
			if boot == once {
				return word, err
			}
		}
		return "none", err
	}
	return "", fmt.Errorf("unknown name %q", name)
}

func (s *control) set(ctx context.Context, name, value string) error {
	switch {
	case name == "power" && value == "1":
		return s.chassis.SetPower(ctx, PowerOn)
	case name == "power":
		return s.chassis.SetPower(ctx, ForceOff)
	case name == "shutdown":
		return s.chassis.SetPower(ctx, SoftOff)
	case name == "reset":
		return errors.Join(s.chassis.SetPower(ctx, ForceOff), s.chassis.SetPower(ctx, PowerOn))
	case name == "identify":
		return nil // there is no light
	case name == "boot":
		boot, ok := ipmiBoots[value]
		if !ok {
			return fmt.Errorf("unknown device %q", value)
		}
		return s.chassis.SetBootOnce(ctx, boot)
	}
	return fmt.Errorf("unknown name %q", name)
}
