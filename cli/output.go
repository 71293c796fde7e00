package cli

import (
	"fmt"
	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
	"google.golang.org/protobuf/proto"
	"io"
) // stream writes one message of a stream: a line of JSON, a YAML document, a name, or text.
func (a *app) stream(m proto.Message, text func() string, name string) error {
	switch a.flags.output {
	case "json":
		line, err := view.Decoded(m)
		if err != nil {
			return err
		}
		return a.write(string(line) + "\n")
	case "yaml":
		doc, err := view.YAML(m)
		if err != nil {
			return err
		}
		return a.write("---\n" + string(doc))
	case "name":
		return a.write(name + "\n")
	}
	return a.write(text())
}

// print writes an answer in the form that --output asks for.
func (a *app) print(m proto.Message, table func() string, names ...string) error {
	var out []byte
	var err error
	switch a.flags.output {
	case "json":
		out, err = view.JSON(m)
	case "yaml":
		out, err = view.YAML(m)
	case "name":
		for _, n := range names {
			out = append(out, n+"\n"...)
		}
	default:
		out = []byte(table())
	}
	if err != nil {
		return err
	}
	return a.write(string(out))
}

func (a *app) write(text string) error {
	if _, err := io.WriteString(a.cfg.Out, text); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func (a *app) printMachine(m *pb.Machine) error {
	return a.print(m, func() string { return a.style().Machine(m, a.now()) }, m.GetMachineId())
}
